// Kernels before their calls: prepare and its handle, prepare_all, on_miss, and what is shared.
#include "kiln/prepare.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>

#include "ahead/compile_only.hpp"
#include "kernel/kernel_build.hpp"
#include "kernel/kernel_table.hpp"
#include "kernel/process_cache.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/message.hpp"
#include "tests/support/no_threads.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using testing::code_of;
using ::testing::HasSubstr;

const Stream kStream{{DeviceType::cpu, 0}, nullptr};
const Device kCpu{DeviceType::cpu, 0};

class Prepare : public ::testing::Test {
 protected:
  void SetUp() override { KILN_NEED(host); }
};

Specification vectors(const Function& function, std::int64_t size = 8) {
  Specification specification;
  for (const std::string& name : argument_names(function)) {
    specification.arguments.push_back({name, DType::f32, {size}, {}, false, false, 0});
  }
  return specification;
}

// A function that no other test has.
Function distinct(const std::string& name, Options options = {}) {
  static std::atomic<int> count{0};
  const int own = ++count;
  return fuse(
      name, [own](Value x) { return x * 3 + (own + 0.5); }, options);
}

std::vector<NamedKernel> names_of(const std::vector<KernelRequest>& requests) {
  std::vector<NamedKernel> names;
  for (const KernelRequest& request : requests) names.push_back(name_kernel(request));
  return names;
}

struct Arrays {
  alignas(16) float in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) float out[8] = {};
  std::vector<Argument> inputs() { return {View(in, DType::f32, {8}, kCpu)}; }
  std::vector<View> outputs() { return {View(out, DType::f32, {8}, kCpu)}; }
};

TEST_F(Prepare, MakesACallThatMayNotCompilePossible) {
  const Function f = distinct("prepared", {.on_miss = OnMiss::fail});
  Arrays arrays;
  EXPECT_EQ(code_of([&] { f.call(kStream, arrays.inputs(), arrays.outputs()); }),
            Code::would_compile);
  const Preparation preparation = f.prepare(kCpu, vectors(f));
  preparation.wait();
  EXPECT_TRUE(preparation.ready());
  EXPECT_FALSE(preparation.error());
  EXPECT_EQ(preparation.get().cache, CacheState::compiled);
  EXPECT_GT(preparation.get().compile_ms, 0);
  f.call(kStream, arrays.inputs(), arrays.outputs());
  EXPECT_EQ(arrays.out[1] - arrays.out[0], 3.0f);
  EXPECT_EQ(f.prepare(kStream, arrays.inputs(), arrays.outputs()).key, preparation.get().key);
  EXPECT_EQ(f.prepare(kCpu, vectors(f)).get().cache, CacheState::memory);
}

TEST_F(Prepare, TheFormWithMemoryCompilesWhateverOnMissSays) {
  const Function f = distinct("explicit", {.on_miss = OnMiss::fail});
  Arrays arrays;
  EXPECT_EQ(f.prepare(kStream, arrays.inputs(), arrays.outputs()).cache, CacheState::compiled);
  EXPECT_NO_THROW(f.call(kStream, arrays.inputs(), arrays.outputs()));
}

TEST_F(Prepare, AMissInTheBackgroundIsThereForALaterCall) {
  const Function f = distinct("background", {.on_miss = OnMiss::background});
  Arrays arrays;
  std::string message;
  EXPECT_EQ(code_of([&] { f.call(kStream, arrays.inputs(), arrays.outputs()); }, &message),
            Code::would_compile);
  EXPECT_THAT(message, HasSubstr("background: no kernel for"));
  EXPECT_THAT(message, HasSubstr("is being compiled in the background"));
  f.prepare(kCpu, vectors(f)).wait();  // the same kernel
  f.call(kStream, arrays.inputs(), arrays.outputs());
  EXPECT_EQ(arrays.out[1] - arrays.out[0], 3.0f);
}

TEST_F(Prepare, RefusesTypesThatDoNotFit) {
  const Function f = distinct("misfit");
  std::string message;
  EXPECT_EQ(code_of([&] { f.prepare(kCpu, {}); }, &message), Code::invalid_argument);
  EXPECT_THAT(message, HasSubstr("misfit: no type was given for the argument 'in0'"));
}

TEST_F(Prepare, NothingToComputeIsReadyAtOnce) {
  const Function f = distinct("empty");
  const Preparation preparation = f.prepare(kCpu, vectors(f, 0));
  EXPECT_TRUE(preparation.ready());
  EXPECT_EQ(preparation.get().kernels, 0);
}

TEST_F(Prepare, AllAreDoneAndReportedOnceEach) {
  std::vector<PrepareItem> items;
  for (int i = 0; i < 12; ++i) {
    const Function f = distinct(fmt::format("many{}", i));
    items.push_back({f, kCpu, vectors(f)});
  }
  items.push_back(items.front());                  // twice the same
  items.push_back({items[1].function, kCpu, {}});  // and one that is wrong
  std::vector<int> reports(items.size());
  std::size_t last = 0;
  const std::vector<Preparation> all = prepare_all(items, [&](const PrepareProgress& progress) {
    ++reports[progress.index];
    EXPECT_EQ(progress.done, ++last);
    EXPECT_EQ(progress.total, items.size());
    EXPECT_TRUE(progress.preparation.ready());
  });
  EXPECT_EQ(reports, std::vector<int>(items.size(), 1));
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    EXPECT_TRUE(all[i].ready());
    EXPECT_FALSE(all[i].error()) << all[i].error()->what();
  }
  EXPECT_EQ(all[12].get().key, all[0].get().key);
  ASSERT_TRUE(all[13].error());
  EXPECT_EQ(all[13].error()->code(), Code::invalid_argument);
  for (std::size_t i = 0; i < 12; ++i) {
    Arrays arrays;
    items[i].function.call(kStream, arrays.inputs(), arrays.outputs());
    EXPECT_EQ(arrays.out[1] - arrays.out[0], 3.0f);
    EXPECT_EQ(items[i].function.prepare(kStream, arrays.inputs(), arrays.outputs()).cache,
              CacheState::memory);
  }
}

// Of machines that share a server each then compiles a part of what all need.
TEST_F(Prepare, OrderIsTheMachinesOwnWithARemoteCache) {
  std::vector<PrepareItem> items;
  for (int i = 0; i < 8; ++i) {
    const Function f = distinct(fmt::format("ordered{}", i));
    items.push_back({f, kCpu, vectors(f)});
  }
  const auto order = [&] {
    std::vector<std::size_t> indices;
    prepare_all(items, [&](const PrepareProgress& one) { indices.push_back(one.index); });
    return indices;
  };
  order();  // from here on all are loaded
  const std::vector<std::size_t> in_order = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(order(), in_order);
  try {
    cache::use_remote("redis+unix:///nowhere", "0123456789abcdef0123456789abcdef");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::vector<std::size_t> first = order(), second = order();
  cache::use_remote("", "");
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(in_order));
  EXPECT_TRUE(first != in_order || second != in_order) << "both is so once in 1.6e9 times";
}

TEST_F(Prepare, KernelsThatShareAProgramAreEntriesOfTheirOwn) {
  std::vector<KernelRequest> requests;
  for (int i = 0; i < 3; ++i) {
    const Function f = distinct(fmt::format("shared{}", i));
    requests.push_back(emit_all(f, vectors(f), "cpu").at(0).request);
  }
  BuildControl control(BuildControl::Priority::background);
  const std::vector<BuildResult> outcomes = build_kernels(requests, names_of(requests), control);
  cache::Filter filter;
  for (const BuildResult& outcome : outcomes) filter.keys.push_back(outcome.code.named.key);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(outcomes[i].failure) << outcomes[i].failure->message;
    EXPECT_EQ(outcomes[i].code.state, CacheState::compiled);
    EXPECT_EQ(outcomes[i].code.code, outcomes[0].code.code);
    const std::optional<KernelCode> found = find_code(requests[i], name_kernel(requests[i]));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->named.key, outcomes[i].code.named.key);
    // `kiln cache verify --recompile` gets the same bytes from the source that is kept.
    const std::optional<cache::Entry> entry = process_cache().read(found->named.key);
    ASSERT_TRUE(entry);
    EXPECT_THAT(entry->source, HasSubstr(outcomes[2].code.named.entry_name));
  }
  const cache::Recompilation result = cache::recompile(process_cache(), filter);
  EXPECT_EQ(result.same, requests.size());
  EXPECT_TRUE(result.problems.empty());
}

TEST_F(Prepare, WhatNoThreadCanBeStartedForFailsAndIsPreparedWhenAskedForAgain) {
  const Function f = distinct("no_thread", {.on_miss = OnMiss::background});
  // In a copy of this process, whose threads are yet to be started.
  EXPECT_EXIT(
      {
        Arrays arrays;
        {
          const testing::NoThreads none;
          const std::optional<Error> error = f.prepare(kCpu, vectors(f)).error();
          if (!error || error->code() != Code::io) _exit(1);
          if (std::string(error->what()).find("cannot start a thread") == std::string::npos)
            _exit(2);
          if (code_of([&] { f.call(kStream, arrays.inputs(), arrays.outputs()); }) != Code::io) {
            _exit(3);
          }
        }
        _exit(f.prepare(kCpu, vectors(f)).error() ? 4 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(Prepare, OneBadKernelOfAProgramFailsAlone) {
  std::vector<KernelRequest> requests;
  for (int i = 0; i < 3; ++i) {
    const Function f = distinct(fmt::format("neighbour{}", i));
    requests.push_back(emit_all(f, vectors(f), "cpu").at(0).request);
  }
  requests[1].text += "\nno_such_type broken;\n";
  BuildControl control(BuildControl::Priority::background);
  const std::vector<BuildResult> outcomes = build_kernels(requests, names_of(requests), control);
  EXPECT_FALSE(outcomes[0].failure);
  EXPECT_FALSE(outcomes[2].failure);
  ASSERT_TRUE(outcomes[1].failure);
  EXPECT_EQ(outcomes[1].failure->code, Code::compile_failed);
  EXPECT_THAT(outcomes[1].failure->message, HasSubstr("function 'neighbour1'"));
  EXPECT_THAT(outcomes[1].failure->message, HasSubstr("expression: "));
  EXPECT_THAT(outcomes[1].failure->message, HasSubstr("no_such_type broken;"));
}

// Keeps every thread that prepares kernels busy with telling of one that is done.
class BusyTable {
 public:
  BusyTable() {
    for (int i = 0; i < jit::compile_jobs(); ++i) {
      const Function f = distinct("busy");
      WantedKernel wanted{emit_all(f, vectors(f), "cpu").at(0).request, nullptr};
      wanted.request.alone = true;
      const KernelTable::Done done = [this](const KernelResult&) {
        busy_.count_down();
        released_.wait();
        left_.count_down();
      };
      KernelTable::instance().request(std::span(&wanted, 1), std::span(&done, 1));
    }
    busy_.wait();
  }
  ~BusyTable() {
    released_.count_down();
    left_.wait();
  }

 private:
  std::latch busy_{jit::compile_jobs()};
  std::latch released_{1};
  std::latch left_{jit::compile_jobs()};
};

TEST_F(Prepare, ACancelledOneIsNotRememberedAsAFailure) {
  const Function f = distinct("cancelled");
  {
    const BusyTable busy;
    Preparation preparation = f.prepare(kCpu, vectors(f));
    EXPECT_FALSE(preparation.ready());
    preparation.cancel();
    EXPECT_TRUE(preparation.ready());
    const std::optional<Error> error = preparation.error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::would_compile);
    EXPECT_THAT(error->what(), HasSubstr("cancelled"));
  }
  EXPECT_FALSE(f.prepare(kCpu, vectors(f)).error());
  Arrays arrays;
  EXPECT_NO_THROW(f.call(kStream, arrays.inputs(), arrays.outputs()));
}

TEST_F(Prepare, CallsAndPreparationsOfOneFunctionCompileItOnce) {
  const auto compiled = [] { return cache::stats(process_cache())[cache::Count::compiled]; };
  std::vector<PrepareItem> items;
  for (int i = 0; i < 6; ++i) {
    const Function f = distinct(fmt::format("asked_by_all{}", i));
    items.push_back({f, kCpu, vectors(f)});
  }
  const std::uint64_t before = compiled();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      if (t == 0) {
        for (const Preparation& one : prepare_all(items)) wrong += one.error() ? 1 : 0;
        return;
      }
      for (std::size_t i = 0; i < items.size(); ++i) {
        Arrays arrays;
        const Function& f = items[(i * static_cast<std::size_t>(t)) % items.size()].function;
        f.call(kStream, arrays.inputs(), arrays.outputs());
        wrong += arrays.out[1] - arrays.out[0] == 3.0f ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(compiled() - before, items.size());
}

}  // namespace
}  // namespace kiln
