// Loads kernels with dlopen and runs them over a pool of threads, kiln's or the caller's. See
// cpu_backend.hpp.
#include "jit/device/cpu/cpu_backend.hpp"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "base/configuration.hpp"
#include "jit/device/cpu/shared_object.hpp"
#include "jit/device/cpu/threads.hpp"
#include "jit/device/operation_list.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::cpu {
namespace {

/// See LaunchShape for what it computes.
using Entry = void (*)(void* const* arguments, unsigned long long begin, unsigned long long end);

class CpuKernel final : public Kernel {
 public:
  CpuKernel(const Backend& owner, SharedObject object, const std::string& entry)
      : Kernel(owner),
        object_(std::move(object)),
        entry_(reinterpret_cast<Entry>(object_.symbol(entry))) {}

  Entry entry() const { return entry_; }

 private:
  SharedObject object_;
  Entry entry_;
};

/// "model name" of /proc/cpuinfo; machines that have no such line are named by their architecture.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
#if defined(__aarch64__)
  return "aarch64 CPU";
#else
  return "CPU";
#endif
}

class CpuBackend final : public Backend {
 public:
  CpuBackend()
      : name_(cpu_name()),
        threads_(thread_count()),
        executor_(base::configuration("the CPU device").executor),
        arena_(threads_) {
    if (!executor_) arena_.initialize();  // starts no threads; takes longer than a small launch
  }

  Device device() const override { return {DeviceType::cpu, 0}; }
  std::string name() const override { return name_; }
  std::string target() const override { return host_target(); }
  int wave_size() const override { return 1; }
  int compute_units() const override { return threads_; }

  std::shared_ptr<Kernel> load(std::span<const std::byte> code, const std::string& entry) override {
    return std::make_shared<CpuKernel>(*this, SharedObject(code, entry), entry);
  }
  void launch(const Kernel& kernel, const LaunchShape& shape, void* const* arguments,
              const Stream& stream) override;
  bool wait_until_idle() override { return true; }
  bool is_capturing(const Stream&) override { return false; }
  std::unique_ptr<PreparedGraph> prepare(std::vector<GraphNode> nodes) override {
    return prepare_list(*this, std::move(nodes));
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream&) override;
  void fill(void* to, std::uint8_t value, std::size_t bytes, const Stream&) override {
    if (bytes != 0) std::memset(to, value, bytes);
  }

  void* allocate(std::size_t bytes) override;
  void free(void* pointer) noexcept override { std::free(pointer); }
  void copy_in(void* to, const void* from, std::size_t bytes, const Stream& stream) override {
    copy_on_device(to, from, bytes, stream);
  }
  void copy_out(void* to, const void* from, std::size_t bytes, const Stream& stream) override {
    copy_on_device(to, from, bytes, stream);
  }
  void synchronize(const Stream&) override {}
  Stream create_stream() override { return {device(), nullptr}; }
  void destroy_stream(const Stream&) noexcept override {}
  double time_us(const Stream& stream, const std::function<void()>& body) override;

 private:
  /// Calls work(begin, end) for each part, on all cores or by the executor.
  template <class Work>
  void for_each_part(const Cut& parts, std::uint64_t items, const Work& work);

  std::string name_;
  int threads_;
  const Executor& executor_;  // empty: the arena
  oneapi::tbb::task_arena arena_;
};

template <class Work>
void CpuBackend::for_each_part(const Cut& parts, std::uint64_t items, const Work& work) {
  const auto run = [&](std::size_t part) {
    const std::uint64_t begin = part * parts.length;
    work(begin, std::min(begin + parts.length, items));
  };
  if (executor_) {
    using Run = decltype(run);
    executor_(parts.parts,
              Task([](const void* all, std::size_t part) { (*static_cast<const Run*>(all))(part); },
                   &run));
    return;
  }
  // Static: part i goes to the same core every time, where its data may still be in the cache.
  arena_.execute([&] {
    oneapi::tbb::parallel_for(std::size_t{0}, static_cast<std::size_t>(parts.parts), run,
                              oneapi::tbb::static_partitioner());
  });
}

void CpuBackend::launch(const Kernel& kernel, const LaunchShape& shape, void* const* arguments,
                        const Stream& stream) {
  if (shape.work_items == 0) return;
  if (stream.device != device()) [[unlikely]] {
    throw Error(Code::invalid_argument,
                fmt::format("launch on cpu: the stream is one of {}", to_string(stream.device)));
  }
  if (&kernel.owner() != this) [[unlikely]] {
    throw Error(Code::invalid_argument, fmt::format("launch on cpu: the kernel is loaded on {}",
                                                    to_string(kernel.owner().device())));
  }
  const Entry entry = static_cast<const CpuKernel&>(kernel).entry();
  const Cut parts = cut(shape.work_items, shape.block, threads_);
  if (parts.parts == 1) {
    entry(arguments, 0, shape.work_items);
    return;
  }
  for_each_part(parts, shape.work_items,
                [&](std::uint64_t begin, std::uint64_t end) { entry(arguments, begin, end); });
}

// With all cores, where the copy is long enough and the two do not overlap.
void CpuBackend::copy_on_device(void* to, const void* from, std::size_t bytes, const Stream&) {
  constexpr std::size_t kPart = std::size_t{1} << 18;
  auto* const target = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  const Cut parts = cut(bytes, kPart, threads_);
  if (bytes == 0) return;
  if (parts.parts == 1 || (target < source + bytes && source < target + bytes)) {
    std::memmove(to, from, bytes);
    return;
  }
  for_each_part(parts, bytes, [&](std::uint64_t begin, std::uint64_t end) {
    std::memcpy(target + begin, source + begin, end - begin);
  });
}

// Large arrays are asked for in huge pages, which kernels that walk across rows would else spend
// their time finding. A system that has none leaves them as they are.
void* CpuBackend::allocate(std::size_t bytes) {
  constexpr std::size_t kAlign = 64;
  constexpr std::size_t kHugePage = std::size_t{1} << 21;
  const bool large = bytes >= 4 * kHugePage;
  void* pointer = nullptr;
  if (::posix_memalign(&pointer, large ? kHugePage : kAlign, std::max<std::size_t>(bytes, 1)) !=
      0) {
    throw Error(Code::device, fmt::format("allocate failed on cpu: no memory for {} bytes", bytes));
  }
#ifdef MADV_HUGEPAGE
  if (large) ::madvise(pointer, bytes, MADV_HUGEPAGE);
#endif
  return pointer;
}

double CpuBackend::time_us(const Stream&, const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
  return passed.count();
}

}  // namespace

std::unique_ptr<Backend> open() { return std::make_unique<CpuBackend>(); }

}  // namespace kiln::jit::cpu
