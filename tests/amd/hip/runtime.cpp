// See runtime.hpp.
#include "tests/amd/hip/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/amd/isa/disassembler.hpp"
#include "tests/support/settings.hpp"

namespace kiln::amd {
namespace {

const DeviceMemory* memory_of(const void* pointer) {
  for (const auto& gpu : Runtime::instance().gpus) {
    if (gpu->memory.find(reinterpret_cast<std::uint64_t>(pointer)) != nullptr) return &gpu->memory;
  }
  return nullptr;
}

void run_now(int device, const KernelWork& work) {
  Runtime& runtime = Runtime::instance();
  const std::shared_ptr<const CodeObject> code = work.code.lock();
  if (code == nullptr) throw Fault("a kernel's module was unloaded before its launch ran");
  ++runtime.launches;
  if (!std::exchange(work.function->has_run, true)) ++runtime.kernels;
  Dispatch dispatch;
  dispatch.kernel = work.function->kernel;
  dispatch.blocks = {work.blocks.x, work.blocks.y, work.blocks.z};
  dispatch.threads = {work.threads.x, work.threads.y, work.threads.z};
  dispatch.dynamic_lds = work.dynamic_lds;
  dispatch.arguments = work.arguments;
  runtime.trace.add(execute(
      dispatch, gpu(device).memory,
      {.seed = runtime.queue.draw(), .worst_transcendentals = runtime.worst_transcendentals}));
}

void run_now(int, const CopyWork& work) {
  const DeviceMemory* const to = memory_of(work.to);
  const DeviceMemory* const from = memory_of(work.from);
  if (to != nullptr && from != nullptr) {
    DeviceMemory::copy(*to, work.to, *from, work.from, work.bytes);
  } else {
    std::memcpy(work.to, work.from, work.bytes);
    if (to != nullptr) to->mark_written(work.to, work.bytes);
  }
}

void run_now(int, const FillWork& work) {
  std::memset(work.to, work.value, work.bytes);
  memory_of(work.to)->mark_written(work.to, work.bytes);
}

void run_now(int, const std::monostate&) {}
void run_now(int, const GraphWork&) {}  // its nodes are operations of their own

}  // namespace

Runtime& Runtime::instance() {
  static auto* const one = new Runtime;  // kernels are unloaded until the very end of the process
  return *one;
}

Runtime::Runtime() : seed(testing::random_seed()), queue(seed) {
  const char* const chosen = std::getenv("KILN_TEST_AMD_TARGET");
  target = find_target(chosen != nullptr ? chosen : "gfx1030");
  worst_transcendentals = testing::setting("KILN_TEST_AMD_WORST", 0) != 0;
  if (target == nullptr) {
    why_no_gpus = fmt::format("KILN_TEST_AMD_TARGET={} cannot be emulated; there are: {}", chosen,
                              known_targets());
  } else if (find_comgr().empty()) {
    why_no_gpus = "no libamd_comgr, whose disassembler reads the kernels (Debian: libamd-comgr2)";
  } else {
    constexpr std::uint64_t kMiB = 1 << 20;
    for (int index = 0; index < 2; ++index) {
      gpus.push_back(
          std::make_unique<Gpu>(index, testing::setting("KILN_TEST_AMD_MEMORY", 1024) * kMiB));
    }
  }
}

bool is_valid(const void* handle) { return Runtime::instance().handles.count(handle) != 0; }

Gpu& gpu(int index) { return *Runtime::instance().gpus[static_cast<std::size_t>(index)]; }

void release(const void* handle, hipError_t otherwise) {
  if (Runtime::instance().handles.erase(handle) == 0) throw Refusal{otherwise};
}

void require_healthy(int device) {
  if (static_cast<std::size_t>(device) >= Runtime::instance().gpus.size()) {
    throw Refusal{hipErrorNoDevice};
  }
  if (gpu(device).lost) throw Refusal{hipErrorIllegalAddress};
}

void check(const CopyWork& copy, hipMemcpyKind kind) {
  const DeviceMemory* const to = memory_of(copy.to);
  const DeviceMemory* const from = memory_of(copy.from);
  if (copy.to == nullptr || copy.from == nullptr) throw Refusal{};
  if (to != nullptr && !to->holds(copy.to, copy.bytes)) throw Refusal{};
  if (from != nullptr && !from->holds(copy.from, copy.bytes)) throw Refusal{};
  const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  const bool is_as_said = (to != nullptr) == to_device && (from != nullptr) == from_device;
  if (kind != hipMemcpyDefault && !is_as_said) throw Refusal{};
}

void check(const FillWork& fill) {
  const DeviceMemory* const to = memory_of(fill.to);
  if (to == nullptr || !to->holds(fill.to, fill.bytes)) throw Refusal{};
}

KernelWork kernel_work(const hipKernelNodeParams& given, int device) {
  const auto function = static_cast<hipFunction_t>(given.func);
  if (valid(function, hipErrorInvalidDeviceFunction).device != device) {
    throw Refusal{hipErrorInvalidDeviceFunction};
  }
  const Kernel& kernel = *function->kernel;
  const auto volume = [](const dim3& size) { return std::uint64_t{size.x} * size.y * size.z; };
  constexpr std::uint64_t kMostThreads = std::uint64_t{1} << 32;  // along an axis, exclusive
  const auto fits = [](std::uint32_t blocks, std::uint32_t threads) {
    return std::uint64_t{blocks} * threads < kMostThreads;
  };
  if (volume(given.gridDim) == 0 || volume(given.blockDim) == 0) throw Refusal{};
  if (volume(given.blockDim) > kernel.max_threads) throw Refusal{hipErrorInvalidConfiguration};
  if (!fits(given.gridDim.x, given.blockDim.x) || !fits(given.gridDim.y, given.blockDim.y) ||
      !fits(given.gridDim.z, given.blockDim.z)) {
    throw Refusal{hipErrorInvalidConfiguration};
  }
  const auto lds = static_cast<std::uint64_t>(Runtime::instance().target->lds_bytes);
  if (std::uint64_t{kernel.lds_bytes} + given.sharedMemBytes > lds) throw Refusal{};
  if (given.extra != nullptr) throw Refusal{hipErrorNotSupported};
  if (given.kernelParams == nullptr && kernel.argument_bytes != 0) throw Refusal{};

  KernelWork made;
  made.function = function;
  made.code = function->code;
  made.blocks = given.gridDim;
  made.threads = given.blockDim;
  made.dynamic_lds = given.sharedMemBytes;
  made.arguments.assign(kernel.argument_bytes, std::byte{});
  for (std::size_t i = 0; i < kernel.arguments.size() && !kernel.arguments[i].hidden(); ++i) {
    const KernelArgument& argument = kernel.arguments[i];
    std::memcpy(made.arguments.data() + argument.offset, given.kernelParams[i], argument.bytes);
  }
  return made;
}

std::vector<Submitted> order(const ihipStream_t& stream) {
  std::vector<Submitted> before = {stream.last};
  Runtime& runtime = Runtime::instance();
  Gpu& own = gpu(stream.device);
  if (stream.blocking) before.push_back(own.null_stream.last);
  if (&stream != &own.null_stream) return before;
  for (const ihipStream_t* other : runtime.streams) {
    if (other->device == stream.device && other->blocking) before.push_back(other->last);
  }
  return before;
}

void submit(ihipStream_t& stream, Work work) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) throw Refusal{hipErrorStreamCaptureInvalidated};
    auto node = std::make_unique<hipGraphNode>();
    node->work = std::move(work);
    node->after = std::exchange(stream.captured_last, {node.get()});
    Runtime::instance().handles.insert(node.get());
    stream.capture->graph->nodes.push_back(std::move(node));
    return;
  }
  stream.last = Runtime::instance().queue.submit(
      stream.device, order(stream),
      [device = stream.device, work = std::move(work)] { run(device, work); });
}

void run(int device, const Work& work) {
  if (gpu(device).lost) return;
  try {
    std::visit([&](const auto& one) { run_now(device, one); }, work);
  } catch (const std::exception& fault) {
    report(device, fault.what());
  }
}

void report(int device, const std::string& fault) {
  Runtime& runtime = Runtime::instance();
  runtime.faults.push_back(fault);
  gpu(device).lost = true;
  std::fprintf(stderr, "The emulated %s %d is lost: %s\n(KILN_TEST_SEED=%llu)\n",
               std::string(runtime.target->processor).c_str(), device, fault.c_str(),
               static_cast<unsigned long long>(runtime.seed));
}

}  // namespace kiln::amd
