// Views of DLPack tensors and back, without DLPack's header, which need not be there when kiln is
// built: the layout of a DLTensor is part of DLPack's ABI, the same in all its versions.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "kiln/dlpack_types.hpp"
#include "kiln/error.hpp"

namespace c = kiln::c;

namespace {

struct Tensor {
  void* data;
  struct {
    std::int32_t type;
    std::int32_t index;
  } device;
  std::int32_t rank;
  struct {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24);

[[noreturn]] void refuse(const char* function, const std::string& problem) {
  throw kiln::Error(kiln::Code::unsupported, fmt::format("{}: {}", function, problem));
}

}  // namespace

kiln_status kiln_view_from_dlpack(const void* tensor, kiln_view* view) {
  return c::guard(__func__, [&](const char* called) {
    const Tensor& given = c::require(static_cast<const Tensor*>(tensor), called, "tensor");
    c::require(view, called, "view");
    const auto dtype =
        kiln::detail::dtype_of_dlpack(given.dtype.code, given.dtype.bits, given.dtype.lanes);
    if (!dtype) {
      refuse(called, fmt::format("dtype: no kiln dtype has code {}, {} bits and {} lanes",
                                 given.dtype.code, given.dtype.bits, given.dtype.lanes));
    }
    const auto device = kiln::detail::device_of_dlpack(given.device.type, given.device.index);
    if (!device) {
      refuse(called,
             fmt::format("device: expected CPU, CUDA or ROCm, got type {}", given.device.type));
    }
    kiln_view result{};
    result.data = static_cast<char*>(given.data) + given.byte_offset;
    result.device = c::from_device(*device);
    result.dtype = static_cast<std::int32_t>(*dtype);
    result.rank = given.rank;
    result.shape = given.shape;
    result.strides = given.strides;
    *view = result;
  });
}

kiln_status kiln_view_to_dlpack(const kiln_view* view, void* tensor) {
  return c::guard(__func__, [&](const char* called) {
    c::require(static_cast<Tensor*>(tensor), called, "tensor");
    const kiln::View checked = c::to_view(view, called, "view");
    const auto dtype = kiln::detail::dlpack_dtype(checked.dtype());
    if (!dtype) {
      refuse(called, fmt::format("dtype: DLPack has no layout for {}, two to a byte",
                                 kiln::name(checked.dtype())));
    }
    Tensor result{};
    result.data = checked.data();
    result.device = {kiln::detail::dlpack_device_type(checked.device().type),
                     checked.device().index};
    result.rank = view->rank;
    result.dtype = {dtype->code, dtype->bits, 1};
    result.shape = const_cast<std::int64_t*>(view->shape);  // DLPack's consumers only read them
    result.strides = const_cast<std::int64_t*>(view->strides);
    *static_cast<Tensor*>(tensor) = result;
  });
}
