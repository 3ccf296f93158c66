// The table of kernels: one build for all who want a kernel, whoever they are, and what is
// remembered of those that fail.
#include "kernel/kernel_table.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <new>

#include "ahead/compile_only.hpp"
#include "jit/device/graph.hpp"
#include "jit/service/service.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using ::testing::HasSubstr;

class KernelTables : public ::testing::Test {
 protected:
  void SetUp() override { KILN_NEED(host); }

  // A kernel for this CPU that no other test has.
  static WantedKernel distinct() {
    static std::atomic<int> count{0};
    const int own = ++count;
    const Function f =
        fuse(fmt::format("table{}", own), [own](Value x) { return x * 5 + (own + 0.25); });
    Specification specification;
    specification.arguments.push_back({"in0", DType::f32, {8}, {}, false, false, 0});
    specification.arguments.back().name = argument_names(f).front();
    return {emit_all(f, specification, "cpu").at(0).request, &backend()};
  }

  static WantedKernel broken() {
    WantedKernel wanted = distinct();
    wanted.request.text += "\nno_such_type broken;\n";
    return wanted;
  }

  static jit::Backend& backend() { return jit::backend({DeviceType::cpu, 0}); }
  static NamedKernel named(const WantedKernel& wanted) { return name_kernel(wanted.request); }
  static std::uint64_t exchanges() { return jit::Service::instance().counters().exchanges; }

  KernelTable& table_ = KernelTable::instance();
};

// The CPU's, which loads kernels in its own way and launches none.
class LoadingBackend : public jit::Backend {
 public:
  explicit LoadingBackend(jit::Backend& real) : real_(real) {}
  Device device() const override { return real_.device(); }
  std::string name() const override { return real_.name(); }
  std::string target() const override { return real_.target(); }
  int wave_size() const override { return real_.wave_size(); }
  int compute_units() const override { return real_.compute_units(); }
  void launch(const jit::Kernel&, const jit::LaunchShape&, void* const*, const Stream&) override {}
  bool wait_until_idle() override { return true; }
  bool is_capturing(const Stream&) override { return false; }
  std::unique_ptr<jit::PreparedGraph> prepare(std::vector<jit::GraphNode>) override { return {}; }
  void copy_on_device(void*, const void*, std::size_t, const Stream&) override {}
  void fill(void*, std::uint8_t, std::size_t, const Stream&) override {}
  void* allocate(std::size_t bytes) override { return real_.allocate(bytes); }
  void free(void* pointer) noexcept override { real_.free(pointer); }
  void copy_in(void*, const void*, std::size_t, const Stream&) override {}
  void copy_out(void*, const void*, std::size_t, const Stream&) override {}
  void synchronize(const Stream&) override {}
  Stream create_stream() override { return real_.create_stream(); }
  void destroy_stream(const Stream& stream) noexcept override { real_.destroy_stream(stream); }
  double time_us(const Stream&, const std::function<void()>&) override { return 0; }

 protected:
  jit::Backend& real_;
};

// Whose host has no memory left.
class ExhaustedBackend final : public LoadingBackend {
 public:
  using LoadingBackend::LoadingBackend;
  std::shared_ptr<jit::Kernel> load(std::span<const std::byte>, const std::string&) override {
    throw std::bad_alloc();
  }
};

// Which loads nothing before that many threads want it.
class CountingBackend final : public LoadingBackend {
 public:
  CountingBackend(jit::Backend& real, int threads) : LoadingBackend(real), begun_(threads) {}
  std::shared_ptr<jit::Kernel> load(std::span<const std::byte> code,
                                    const std::string& entry) override {
    begun_.wait();
    ++loads_;
    return real_.load(code, entry);
  }
  void begin() { begun_.count_down(); }
  int loads() const { return loads_; }

 private:
  std::latch begun_;
  std::atomic<int> loads_{0};
};

TEST_F(KernelTables, WhateverIsThrownIsTheFailureOfTheRequest) {
  ExhaustedBackend exhausted(backend());
  WantedKernel wanted = distinct();
  wanted.backend = &exhausted;
  const KernelResult called = table_.get(wanted, named(wanted));
  ASSERT_TRUE(called.failure);
  EXPECT_EQ(called.failure->code, Code::internal);
  EXPECT_THAT(called.failure->message, HasSubstr("bad_alloc"));
  std::promise<KernelResult> promise;  // on a thread of the table
  const KernelTable::Done done = [&](const KernelResult& result) { promise.set_value(result); };
  table_.request(std::span(&wanted, 1), std::span(&done, 1));
  EXPECT_TRUE(promise.get_future().get().failure);
  wanted.backend = &backend();  // there is memory again
  EXPECT_FALSE(table_.get(wanted, named(wanted)).failure);
}

TEST_F(KernelTables, BuildOneKernelForAllThreadsThatWantIt) {
  const WantedKernel wanted = distinct();
  const std::uint64_t before = exchanges();
  std::vector<std::future<KernelResult>> results;
  for (int i = 0; i < 16; ++i) {
    results.push_back(
        std::async(std::launch::async, [&] { return table_.get(wanted, named(wanted)); }));
  }
  std::shared_ptr<jit::Kernel> kernel;
  for (auto& result : results) {
    const KernelResult one = result.get();
    ASSERT_FALSE(one.failure) << one.failure->message;
    if (!kernel) kernel = one.kernel;
    EXPECT_EQ(one.kernel, kernel);
  }
  EXPECT_EQ(exchanges(), before + 1);
  EXPECT_EQ(table_.find(backend(), named(wanted).key), kernel);
}

TEST_F(KernelTables, CallsThatMayNotCompileShareOneLoad) {
  constexpr int kThreads = 16;
  for (const OnMiss on_miss : {OnMiss::fail, OnMiss::background}) {
    WantedKernel wanted = distinct();
    wanted.backend = nullptr;
    ASSERT_FALSE(table_.get(wanted, named(wanted)).failure);  // it is in the cache
    wanted.request.options.on_miss = on_miss;
    CountingBackend counting(backend(), kThreads);
    const std::uint64_t before = exchanges();
    std::vector<std::future<CacheState>> states;
    for (int i = 0; i < kThreads; ++i) {
      states.push_back(std::async(std::launch::async, [&] {
        counting.begin();
        KernelInfo info;
        load_kernel(counting, wanted.request, info);
        return info.cache;
      }));
    }
    for (auto& state : states) EXPECT_NE(state.get(), CacheState::compiled);
    EXPECT_EQ(counting.loads(), 1);
    EXPECT_EQ(exchanges(), before);
  }
}

TEST_F(KernelTables, ACallThatMayNotCompileWaitsForNoCompile) {
  WantedKernel wanted = distinct();
  std::promise<void> compiled;
  const KernelTable::Done done = [&](const KernelResult&) { compiled.set_value(); };
  const std::vector<KernelTable::Ticket> tickets = table_.request({&wanted, 1}, {&done, 1});
  wanted.request.options.on_miss = OnMiss::fail;
  const KernelResult result = table_.get(wanted, named(wanted));
  // It may be there by now.
  EXPECT_TRUE(!result.failure || result.failure->code == Code::would_compile);
  compiled.get_future().wait();
  EXPECT_FALSE(table_.get(wanted, named(wanted)).failure);
}

TEST_F(KernelTables, ACallAndAPreparationShareOneBuild) {
  const WantedKernel wanted = distinct();
  const std::uint64_t before = exchanges();
  std::promise<KernelResult> prepared;
  const KernelTable::Done done = [&](const KernelResult& result) { prepared.set_value(result); };
  table_.request({&wanted, 1}, {&done, 1});
  const KernelResult called = table_.get(wanted, named(wanted));
  ASSERT_FALSE(called.failure) << called.failure->message;
  EXPECT_EQ(prepared.get_future().get().kernel, called.kernel);
  EXPECT_EQ(exchanges(), before + 1);
}

TEST_F(KernelTables, WhatIsLoadedIsGivenAtOnce) {
  const WantedKernel wanted = distinct();
  const KernelResult called = table_.get(wanted, named(wanted));
  bool given = false;
  const KernelTable::Done done = [&](const KernelResult& result) {
    given = result.kernel == called.kernel && result.info.cache == CacheState::memory;
  };
  const std::vector<KernelTable::Ticket> tickets = table_.request({&wanted, 1}, {&done, 1});
  EXPECT_TRUE(given);
  EXPECT_FALSE(tickets.front().task);
  EXPECT_FALSE(table_.cancel(tickets.front()));
}

TEST_F(KernelTables, TheCompilersVerdictIsRemembered) {
  const WantedKernel wanted = broken();
  const KernelResult first = table_.get(wanted, named(wanted));
  ASSERT_TRUE(first.failure);
  EXPECT_EQ(first.failure->code, Code::compile_failed);
  EXPECT_THAT(first.failure->message, HasSubstr("no_such_type broken;"));
  const std::uint64_t before = exchanges();
  EXPECT_EQ(table_.get(wanted, named(wanted)).failure->message, first.failure->message);
  std::promise<KernelResult> prepared;
  const KernelTable::Done done = [&](const KernelResult& result) { prepared.set_value(result); };
  table_.request({&wanted, 1}, {&done, 1});
  EXPECT_EQ(prepared.get_future().get().failure->message, first.failure->message);
  EXPECT_EQ(exchanges(), before);
}

// Compilers report a missing header as they report a full disk: as a fatal error.
TEST_F(KernelTables, AFailureThatIsNoVerdictIsTriedAgain) {
  WantedKernel wanted = distinct();
  wanted.request.text += "\n#include \"no_such_header.h\"\n";
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t before = exchanges();
    const KernelResult result = table_.get(wanted, named(wanted));
    ASSERT_TRUE(result.failure);
    EXPECT_EQ(result.failure->code, Code::compile_failed);
    EXPECT_FALSE(result.failure->is_verdict);
    EXPECT_GT(exchanges(), before);
  }
}

TEST_F(KernelTables, AVerdictIsOnOneSourceOnly) {
  WantedKernel wanted = broken();
  EXPECT_TRUE(table_.get(wanted, named(wanted)).failure);
  wanted.request.text.resize(wanted.request.text.find("\nno_such_type"));
  EXPECT_FALSE(table_.get(wanted, named(wanted)).failure);
}

TEST_F(KernelTables, ThousandsOfRequestsForOneKernelCostOneCompile) {
  const std::vector<WantedKernel> wanted(2000, distinct());
  const std::uint64_t before = exchanges();
  std::atomic<std::size_t> loaded{0};
  std::promise<void> all;
  const std::vector<KernelTable::Done> done(wanted.size(), [&](const KernelResult& result) {
    EXPECT_TRUE(result.kernel);
    if (++loaded == wanted.size()) all.set_value();
  });
  table_.request(wanted, done);
  all.get_future().wait();
  EXPECT_EQ(exchanges(), before + 1);
}

TEST_F(KernelTables, OneOfTwoRequestsThatIsGivenUpDoesNotStopTheOther) {
  const std::vector<WantedKernel> wanted(2, distinct());
  std::promise<KernelResult> stays;
  const std::vector<KernelTable::Done> done = {
      [](const KernelResult&) {}, [&](const KernelResult& result) { stays.set_value(result); }};
  const std::vector<KernelTable::Ticket> tickets = table_.request(wanted, done);
  table_.cancel(tickets.front());
  EXPECT_FALSE(table_.cancel(tickets.front())) << "twice is once";
  EXPECT_TRUE(stays.get_future().get().kernel);
}

TEST_F(KernelTables, AMissedKernelThatFailsSaysSoToALaterCall) {
  WantedKernel wanted = broken();
  wanted.request.options.on_miss = OnMiss::background;
  std::promise<KernelResult> prepared;
  const KernelTable::Done done = [&](const KernelResult& result) { prepared.set_value(result); };
  table_.request_missed(wanted, named(wanted));
  table_.request({&wanted, 1}, {&done, 1});
  EXPECT_TRUE(prepared.get_future().get().failure);
  for (int call = 0; call < 2; ++call) {
    KernelInfo info;
    try {
      load_kernel(backend(), wanted.request, info);
      ADD_FAILURE() << "did not throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::compile_failed);
    }
  }
}

TEST_F(KernelTables, ARequestThatIsGivenUpIsNotAFailure) {
  const WantedKernel wanted = distinct();
  std::atomic<int> calls{0};
  const KernelTable::Done done = [&](const KernelResult&) { ++calls; };
  const std::vector<KernelTable::Ticket> tickets = table_.request({&wanted, 1}, {&done, 1});
  const bool given_up = table_.cancel(tickets.front());
  const KernelResult called = table_.get(wanted, named(wanted));
  EXPECT_FALSE(called.failure) << called.failure->message;
  EXPECT_EQ(given_up ? 0 : 1, calls.load());
}

TEST_F(KernelTables, WithoutADeviceAKernelIsOnlyPutIntoTheCache) {
  WantedKernel wanted = distinct();
  wanted.backend = nullptr;
  const KernelResult result = table_.get(wanted, named(wanted));
  ASSERT_FALSE(result.failure) << result.failure->message;
  EXPECT_FALSE(result.kernel);
  EXPECT_EQ(result.info.cache, CacheState::compiled);
  EXPECT_TRUE(find_code(wanted.request, name_kernel(wanted.request)));
}

}  // namespace
}  // namespace kiln
