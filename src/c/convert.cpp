// See convert.hpp.
#include "c/convert.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "c/boundary.hpp"
#include "kiln/error.hpp"

namespace kiln::c {
namespace {

constexpr std::int32_t kMaxRank = 1024;

/// A value of an enumeration of C++ whose numbers are those of C, from 0 up to `last`.
template <class Enum>
Enum to_enum(std::int32_t value, Enum last, const char* function, const char* what) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected a number from 0 to {}, got {}", function, what,
                            static_cast<std::int32_t>(last), value));
  }
  return static_cast<Enum>(value);
}

static_assert(static_cast<int>(DeviceType::hip) == KILN_HIP);
static_assert(static_cast<int>(DeviceType::cuda) == KILN_CUDA);
static_assert(static_cast<int>(DType::f16) == KILN_F16);
static_assert(static_cast<int>(DType::c64) == KILN_C64);
static_assert(static_cast<int>(DType::f4e2m1) == KILN_F4E2M1 && kDTypes.size() == KILN_F4E2M1 + 1);
static_assert(static_cast<int>(Rounding::each) == KILN_ROUND_EACH);
static_assert(static_cast<int>(Accuracy::strict) == KILN_ACCURACY_STRICT);
static_assert(static_cast<int>(OnMiss::configured) == KILN_ON_MISS_CONFIGURED);
static_assert(static_cast<int>(KernelParameter::Kind::scalar) == KILN_SCALAR);
static_assert(static_cast<int>(CacheState::compiled) == KILN_FROM_COMPILER);

Dims to_dims(const std::int64_t* numbers, std::int32_t rank) {
  return rank == 0 ? Dims()
                   : Dims(std::span<const std::int64_t>(numbers, static_cast<std::size_t>(rank)));
}

void check_array(const void* items, std::size_t count, const char* function, const char* argument) {
  if (items == nullptr && count != 0) fail_null(function, argument);
}

std::uint32_t misalignment_of(const void* data) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data) % 16);
}

ArgumentSpec to_argument_spec(const kiln_argument& input, const std::string& name,
                              const char* function) {
  ArgumentSpec spec;
  spec.name = name;
  if (input.is_scalar != 0) {
    const Scalar scalar = to_scalar(input.scalar, function);
    spec.dtype = scalar.dtype();
    spec.scalar = true;
    spec.weak = scalar.weak();
    return spec;
  }
  const View view = to_view(&input.view, function, "inputs");
  spec.dtype = view.dtype();
  spec.shape = view.shape();
  if (input.view.strides != nullptr) spec.strides = view.strides();
  spec.misalignment = misalignment_of(view.data());
  return spec;
}

}  // namespace

Device to_device(kiln_device device, const char* function) {
  return {to_enum(device.type, DeviceType::cuda, function, "device type"), device.index};
}

kiln_device from_device(Device device) {
  return {static_cast<std::int32_t>(device.type), device.index};
}

Stream to_stream(const kiln_stream* stream, const char* function) {
  const kiln_stream& given = require(stream, function, "stream");
  return {to_device(given.device, function), given.native};
}

DType to_dtype(std::int32_t dtype, const char* function) {
  return to_enum(dtype, DType::f4e2m1, function, "dtype");
}

OnMiss to_on_miss(std::int32_t on_miss, const char* function) {
  return to_enum(on_miss, OnMiss::fallback, function, "on_miss");
}

std::vector<KernelParameter> to_parameters(const kiln_kernel_parameter* parameters,
                                           std::size_t count, const char* function) {
  check_array(parameters, count, function, "parameters");
  std::vector<KernelParameter> declared;
  for (std::size_t i = 0; i < count; ++i) {
    declared.push_back(
        {to_enum(parameters[i].kind, KernelParameter::Kind::scalar, function, "parameters: kind"),
         to_dtype(parameters[i].dtype, function)});
  }
  return declared;
}

Grid to_grid(const kiln_grid* grid, const char* function) {
  const kiln_grid& given = require(grid, function, "grid");
  return {{given.blocks[0], given.blocks[1], given.blocks[2]},
          {given.threads[0], given.threads[1], given.threads[2]},
          given.shared_bytes};
}

View to_view(const kiln_view* view, const char* function, const char* argument) {
  const kiln_view& given = require(view, function, argument);
  if (given.rank < 0 || given.rank > kMaxRank) {
    throw Error(Code::invalid_argument, fmt::format("{}: {}: rank: expected 0 to {}, got {}",
                                                    function, argument, kMaxRank, given.rank));
  }
  if (given.rank != 0) require(given.shape, function, "shape");
  const DType dtype = to_dtype(given.dtype, function);
  const Device device = to_device(given.device, function);
  Dims shape = to_dims(given.shape, given.rank);
  View result = given.strides == nullptr ? View(given.data, dtype, std::move(shape), device)
                                         : View(given.data, dtype, std::move(shape),
                                                to_dims(given.strides, given.rank), device);
  return given.offset == 0 ? result : result.from(given.offset);
}

View to_workspace(const kiln_view* workspace, const char* function) {
  return workspace == nullptr ? View() : to_view(workspace, function, "workspace");
}

Scalar to_scalar(const kiln_scalar& scalar, const char* function) {
  const DType dtype = to_dtype(scalar.dtype, function);
  double number = 0;
  std::memcpy(&number, &scalar.bits, sizeof number);
  const auto integer = static_cast<std::int64_t>(scalar.bits);
  if (scalar.weak == 0) {
    return is_floating(dtype) ? Scalar::typed(number, dtype) : Scalar::typed(integer, dtype);
  }
  switch (dtype) {
    case DType::f64: return Scalar(number);
    case DType::i64: return Scalar(integer);
    case DType::u64: return Scalar(scalar.bits);
    case DType::boolean: return Scalar(scalar.bits != 0);
    default:
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: a weak number is f64, i64, u64 or bool, got {}", function, name(dtype)));
  }
}

Options to_options(const kiln_options* options, const char* function) {
  const kiln_options given = sized(options, function, "options");
  if (given.reserved != 0) fail_reserved(function, "options");
  return {.rounding = to_enum(given.rounding, Rounding::each, function, "options: rounding"),
          .accuracy = to_enum(given.accuracy, Accuracy::strict, function, "options: accuracy"),
          .on_miss = to_enum(given.on_miss, OnMiss::configured, function, "options: on_miss")};
}

Specification to_specification(const kiln_call* call, const std::vector<std::string>& names,
                               const char* function) {
  const kiln_call& given = require(call, function, "call");
  check_array(given.inputs, given.input_count, function, "inputs");
  check_array(given.outputs, given.output_count, function, "outputs");
  if (given.input_count != names.size()) {
    throw Error(Code::invalid_argument, fmt::format("{}: expected {} inputs, got {}", function,
                                                    names.size(), given.input_count));
  }
  Specification specification;
  for (std::size_t i = 0; i < given.input_count; ++i) {
    specification.arguments.push_back(to_argument_spec(given.inputs[i], names[i], function));
  }
  for (std::size_t i = 0; i < given.output_count; ++i) {
    const View view = to_view(&given.outputs[i], function, "outputs");
    specification.outputs.push_back(view.dtype());
    specification.layouts.push_back({view.shape(),
                                     given.outputs[i].strides != nullptr ? view.strides() : Dims(),
                                     misalignment_of(view.data()), 0, 0});
  }
  return specification;
}

Operands::Operands(const kiln_call* call, const char* function) {
  const kiln_call& given = require(call, function, "call");
  check_array(given.inputs, given.input_count, function, "inputs");
  check_array(given.outputs, given.output_count, function, "outputs");
  inputs_.reserve(given.input_count);
  for (std::size_t i = 0; i < given.input_count; ++i) {
    const kiln_argument& input = given.inputs[i];
    if (input.is_scalar != 0) {
      inputs_.emplace_back(to_scalar(input.scalar, function));
    } else {
      inputs_.emplace_back(to_view(&input.view, function, "inputs"));
    }
  }
  outputs_.reserve(given.output_count);
  for (std::size_t i = 0; i < given.output_count; ++i) {
    outputs_.push_back(to_view(&given.outputs[i], function, "outputs"));
  }
}

kiln_kernel_info from_info(const KernelInfo& info) {
  kiln_kernel_info result{};
  result.function = info.function.c_str();
  result.expression = info.expression.c_str();
  result.entry = info.entry.c_str();
  result.key = info.key.c_str();
  result.target = info.target.c_str();
  result.variant = info.variant.c_str();
  result.source = info.source.c_str();
  result.bytes = info.bytes;
  result.compile_ms = info.compile_ms;
  result.cache = static_cast<std::int32_t>(info.cache);
  result.kernels = info.kernels;
  result.fallback = info.fallback ? 1 : 0;
  return result;
}

kiln_kernel_info kept_for_thread(KernelInfo info) {
  static thread_local KernelInfo kept;
  kept = std::move(info);
  return from_info(kept);
}

}  // namespace kiln::c
