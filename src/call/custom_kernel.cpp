#include "call/custom_kernel.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "call/manifest_log.hpp"
#include "call/plan.hpp"
#include "core/check_view.hpp"
#include "core/scalar_bytes.hpp"
#include "fusion/emit/emit.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// ---- Text --------------------------------------------------------------------------------------

// What stands before the source on the host. A grid may be larger than the work, so a kernel of the
// first form looks at the count too. One of the second sees the words of HIP, one thread at a time;
// threads that share memory or wait for each other cannot run so.
constexpr std::string_view kHostFrame = R"(#undef KILN_FOR_EACH_WORK_ITEM
#define KILN_FOR_EACH_WORK_ITEM(Index, threads, item, count) \
  for (Index item = Index(kiln_begin); item < Index(kiln_end) && item < Index(count); ++item)
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static_assert(false, "shared memory: this kernel does not run on the CPU device");
#define __syncthreads() static_assert(false, "__syncthreads: this kernel does not run on the CPU device")
namespace kiln {
struct Dim3 {
  u32 x, y, z;
};
// Whatever pointer the kernel declares.
struct AnyPointer {
  void* address;
  template <class T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};
}  // namespace kiln
static thread_local kiln::Dim3 gridDim, blockDim, blockIdx, threadIdx;
)";

constexpr std::string_view kThreadLoop =
    R"(  const kiln::u32* grid = (const kiln::u32*)arguments[{0}];
  gridDim = {{grid[0], grid[1], grid[2]}};
  blockDim = {{grid[3], grid[4], grid[5]}};
  for (kiln::u64 block = begin; block < end; ++block) {{
    blockIdx = {{kiln::u32(block % grid[0]), kiln::u32(block / grid[0] % grid[1]),
                kiln::u32(block / grid[0] / grid[1])}};
    kiln::Dim3& t = threadIdx;
    for (t.z = 0; t.z < grid[5]; ++t.z)
      for (t.y = 0; t.y < grid[4]; ++t.y)
        for (t.x = 0; t.x < grid[3]; ++t.x) ::{1}({2});
  }}
)";

std::string host_entry(const Kernel::Impl& kernel) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    const KernelParameter& parameter = kernel.parameters[i];
    const std::string type =
        parameter.dtype == DType::boolean ? "bool" : fmt::format("kiln::{}", name(parameter.dtype));
    values.push_back(parameter.kind == KernelParameter::Kind::scalar
                         ? fmt::format("*({}*)arguments[{}]", type, i)
                         : fmt::format("kiln::AnyPointer{{*(void**)arguments[{}]}}", i));
  }
  std::string text = fmt::format(
      "extern \"C\" void {}(void* const* arguments, kiln::u64 begin, kiln::u64 end) {{\n",
      fusion::kEntryMarker);
  if (kernel.by_thread) {
    text +=
        fmt::format(kThreadLoop, kernel.parameters.size(), kernel.name, fmt::join(values, ", "));
  } else {
    text += fmt::format("  using namespace kiln;\n  {}_range(begin, end{}{});\n", kernel.name,
                        values.empty() ? "" : ", ", fmt::join(values, ", "));
  }
  return text + "}\n";
}

// On a GPU the kernel gets the name under which it is looked up, which holds the key.
std::string complete_text(const Kernel::Impl& kernel) {
  return fmt::format("#if KILN_HOST\n{}#else\n#define {} {}\n#endif\n{}\n#if KILN_HOST\n{}#endif\n",
                     kHostFrame, kernel.name, fusion::kEntryMarker, kernel.source,
                     host_entry(kernel));
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || digit(c); });
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_identifier(fmt::format("a{}", text[at - 1]));
    const std::size_t end = at + word.size();
    const bool ends = end == text.size() || !is_identifier(fmt::format("a{}", text[end]));
    if (begins && ends) return true;
  }
  return false;
}

bool is_scalar_dtype(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::boolean ||
         (is_integer(dtype) && bits(dtype) >= 8);
}

std::string signature_text(std::span<const KernelParameter> parameters) {
  constexpr std::string_view kWords[] = {"reads ", "writes ", "reads and writes ", ""};
  std::string text;
  for (const KernelParameter& parameter : parameters) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                        kWords[static_cast<std::size_t>(parameter.kind)], name(parameter.dtype));
  }
  return text;
}

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

}  // namespace

Kernel::Impl::Impl(std::string_view kernel_name, std::string_view kernel_source,
                   std::span<const KernelParameter> kernel_parameters,
                   const Options& kernel_options)
    : name(kernel_name),
      source(kernel_source),
      parameters(kernel_parameters.begin(), kernel_parameters.end()),
      options(kernel_options) {
  if (!is_identifier(name)) {
    throw_invalid(fmt::format("kernel: name: expected a C identifier, got '{}'", name));
  }
  if (!has_word(source, name)) {
    throw_invalid(fmt::format("{}: source: there is no kernel of that name in it", name));
  }
  by_thread = !has_word(source, "KILN_KERNEL");
  if (by_thread && !has_word(source, "__global__")) {
    throw_invalid(fmt::format(
        "{}: source: expected extern \"C\" __global__ void {}(...) or KILN_KERNEL(threads, {}, "
        "...), found neither",
        name, name, name));
  }
  awaits = has_word(source, "await_prerequisites");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].kind == KernelParameter::Kind::scalar &&
        !is_scalar_dtype(parameters[i].dtype)) {
      throw_invalid(fmt::format(
          "{}: parameter {}: a number is f32, f64, bool or an integer of 8 bits or more, got {}",
          name, i, kiln::name(parameters[i].dtype)));
    }
  }
  text = complete_text(*this);
}

Kernel::Impl::~Impl() {
  for (const LoadedKernel* loaded = first_.load(); loaded != nullptr;) {
    delete std::exchange(loaded, loaded->next);
  }
}

const LoadedKernel* Kernel::Impl::find(Device device) const {
  const LoadedKernel* loaded = first_.load(std::memory_order_acquire);
  while (loaded != nullptr && loaded->backend->device() != device) loaded = loaded->next;
  return loaded;
}

const LoadedKernel& Kernel::Impl::on(Device device) {
  if (const LoadedKernel* loaded = find(device)) return *loaded;
  auto made = std::make_unique<LoadedKernel>();
  made->backend = &jit::backend(device);
  const std::string target = made->backend->target();
  made->info = info(target);
  if (logs_manifest()) log_kernel(name, source, parameters, options);
  made->kernel = load_kernel(*made->backend, request(target), made->info);
  const std::lock_guard lock(mutex_);
  if (const LoadedKernel* loaded = find(device)) return *loaded;  // another thread was first
  made->next = first_.load(std::memory_order_relaxed);
  first_.store(made.get(), std::memory_order_release);
  return *made.release();
}

KernelRequest Kernel::Impl::request(const std::string& target) const {
  Options own = options;
  own.on_miss = when_kept(own.on_miss);  // it is no function, which something else could serve
  return {name, {}, signature_text(parameters), text, target, own, true};
}

KernelInfo Kernel::Impl::info(const std::string& target) const {
  KernelInfo info;
  info.function = name;
  info.target = target;
  info.variant = by_thread ? "the caller's, __global__" : "the caller's, KILN_KERNEL";
  info.source = source;
  return info;
}

// ---- One call ----------------------------------------------------------------------------------

void check_arguments(const Kernel::Impl& kernel, Device device, const Grid& grid,
                     std::span<const Argument> arguments) {
  const auto refuse = [&](std::size_t i, const std::string& why) {
    throw_invalid(fmt::format("{}: argument {}: {}", kernel.name, i, why));
  };
  if (arguments.size() != kernel.parameters.size()) {
    throw_invalid(fmt::format("{}: expected {} arguments, got {}", kernel.name,
                              kernel.parameters.size(), arguments.size()));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const KernelParameter& parameter = kernel.parameters[i];
    const bool scalar = parameter.kind == KernelParameter::Kind::scalar;
    if (arguments[i].is_scalar() != scalar) {
      refuse(i, scalar
                    ? fmt::format("expected a number ({}), got an array", name(parameter.dtype))
                    : fmt::format("expected an array of {}, got a number", name(parameter.dtype)));
    }
    if (scalar) continue;
    const View& view = arguments[i].view();
    if (view.dtype() != parameter.dtype) {
      refuse(i, fmt::format("expected an array of {}, got one of {}", name(parameter.dtype),
                            name(view.dtype())));
    }
    if (!is_usable(view, device))
      check_view(view, device, kernel.name, fmt::format("argument {}", i));
  }
  if (device.type != DeviceType::cpu) return;
  if (grid.shared_bytes != 0) {
    throw Error(Code::unsupported,
                fmt::format("{}: {} bytes of dynamic shared memory: there is none on the CPU",
                            kernel.name, grid.shared_bytes));
  }
  if (!kernel.by_thread &&
      (grid.blocks.y != 1 || grid.blocks.z != 1 || grid.threads.y != 1 || grid.threads.z != 1)) {
    throw_invalid(fmt::format("{}: the grid of a KILN_KERNEL has one axis, x", kernel.name));
  }
}

jit::LaunchShape launch_shape(const Kernel::Impl& kernel, Device device, const Grid& grid) {
  const auto product = [](const Grid::Extent& e) { return std::uint64_t{e.x} * e.y * e.z; };
  const std::uint64_t blocks = product(grid.blocks);
  const std::uint64_t threads = product(grid.threads);
  jit::LaunchShape shape;
  if (blocks == 0 || threads == 0) return shape;
  if (device.type == DeviceType::cpu) {
    shape.work_items = kernel.by_thread ? blocks : blocks * threads;
    const std::uint64_t share = kernel.by_thread ? jit::kCpuBlock / threads : jit::kCpuBlock;
    shape.block = static_cast<std::uint32_t>(std::max<std::uint64_t>(share, 1));
    return shape;
  }
  shape.work_items = std::uint64_t{grid.blocks.x} * grid.threads.x;
  shape.block = grid.threads.x;
  shape.block_y = grid.threads.y;
  shape.block_z = grid.threads.z;
  shape.grid_y = grid.blocks.y;
  shape.grid_z = grid.blocks.z;
  shape.shared_bytes = grid.shared_bytes;
  shape.exact = true;
  return shape;
}

std::size_t parameter_count(const Kernel::Impl& kernel, Device device) {
  return kernel.parameters.size() + (device.type == DeviceType::cpu ? 1 : 0);
}

std::size_t parameter_bytes(const Kernel::Impl& kernel, std::size_t i) {
  if (i == kernel.parameters.size()) return kGridWords * sizeof(std::uint64_t);
  const KernelParameter& parameter = kernel.parameters[i];
  if (parameter.kind != KernelParameter::Kind::scalar) return sizeof(void*);
  return static_cast<std::size_t>(bits(parameter.dtype) / 8);
}

void fill_parameters(const Kernel::Impl& kernel, Device device, const Grid& grid,
                     std::span<const Argument> arguments, std::uint64_t* words) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_scalar()) {
      words[i] = reinterpret_cast<std::uintptr_t>(arguments[i].view().data());
      continue;
    }
    const Scalar& scalar = arguments[i].scalar();
    const DType dtype = kernel.parameters[i].dtype;
    if (!put_scalar_bytes(reinterpret_cast<std::byte*>(words + i), scalar, dtype)) {
      throw_invalid(fmt::format("{}: argument {}: the number {} does not fit {}", kernel.name, i,
                                scalar_text(scalar), name(dtype)));
    }
  }
  if (device.type != DeviceType::cpu) return;
  const std::uint32_t shape[] = {grid.blocks.x,  grid.blocks.y,  grid.blocks.z,
                                 grid.threads.x, grid.threads.y, grid.threads.z};
  static_assert(sizeof shape == kGridWords * sizeof(std::uint64_t));
  std::memcpy(words + arguments.size(), shape, sizeof shape);
}

std::string scalar_text(const Scalar& scalar) {
  if (is_floating(scalar.dtype())) return fmt::format("{}", std::bit_cast<double>(scalar.bits()));
  if (scalar.dtype() == DType::u64) return fmt::format("{}", scalar.bits());
  return fmt::format("{}", static_cast<std::int64_t>(scalar.bits()));
}

// ---- The public class --------------------------------------------------------------------------

void Kernel::call(const Stream& stream, const Grid& grid,
                  std::span<const Argument> arguments) const {
  constexpr std::size_t kInline = 64;
  check_arguments(*impl_, stream.device, grid, arguments);
  const jit::LaunchShape shape = launch_shape(*impl_, stream.device, grid);
  if (shape.work_items == 0) return;
  const LoadedKernel& loaded = impl_->on(stream.device);
  const std::size_t count = parameter_count(*impl_, stream.device);
  const auto launch = [&](std::uint64_t* words, void** pointers) {
    fill_parameters(*impl_, stream.device, grid, arguments, words);
    for (std::size_t i = 0; i < count; ++i) pointers[i] = words + i;
    loaded.backend->launch(*loaded.kernel, shape, pointers, stream);
  };
  if (count <= kInline) {
    std::array<std::uint64_t, kInline + kGridWords> words;
    std::array<void*, kInline> pointers;
    return launch(words.data(), pointers.data());
  }
  std::vector<std::uint64_t> words(count + kGridWords);
  std::vector<void*> pointers(count);
  launch(words.data(), pointers.data());
}

KernelInfo Kernel::prepare(const Stream& stream) const {
  const bool known = impl_->find(stream.device) != nullptr;
  KernelInfo info = impl_->on(stream.device).info;
  if (known) {
    info.cache = CacheState::memory;
    info.compile_ms = 0;
  }
  return info;
}

const std::string& Kernel::name() const { return impl_->name; }

Kernel kernel(std::string_view name, std::string_view source,
              std::span<const KernelParameter> parameters, const Options& options) {
  return Kernel(std::make_shared<Kernel::Impl>(name, source, parameters, options));
}

Kernel kernel(std::string_view name, std::string_view source,
              std::initializer_list<KernelParameter> parameters, const Options& options) {
  return kernel(name, source, std::span(parameters.begin(), parameters.size()), options);
}

}  // namespace kiln
