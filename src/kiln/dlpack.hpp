// Views of DLPack tensors. Separate from kiln.hpp because it needs the DLPack header, which the
// application brings (Debian: libdlpack-dev). Nothing is copied and nothing is owned: the tensor
// must outlive the view's use.
#pragma once

#include <dlpack/dlpack.h>

#include <optional>
#include <string>

#include "kiln/dlpack_types.hpp"
#include "kiln/error.hpp"
#include "kiln/view.hpp"

namespace kiln {

/// A view of a DLPack tensor's memory: data plus byte offset, C order where it has no strides.
/// Throws Error(unsupported) for a dtype or device that kiln has not.
inline View view_of(const DLTensor& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  void* const data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const std::optional<DType> dtype =
      detail::dtype_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
  if (!dtype) {
    throw Error(Code::unsupported, "view_of: DLPack dtype: no kiln dtype has code " +
                                       std::to_string(int(tensor.dtype.code)) + ", " +
                                       std::to_string(int(tensor.dtype.bits)) + " bits and " +
                                       std::to_string(int(tensor.dtype.lanes)) + " lanes");
  }
  const int device_type = static_cast<int>(tensor.device.device_type);
  const std::optional<Device> device =
      detail::device_of_dlpack(device_type, tensor.device.device_id);
  if (!device) {
    throw Error(Code::unsupported, "view_of: DLPack device: expected CPU, CUDA or ROCm, got type " +
                                       std::to_string(device_type));
  }
  Dims shape{std::span<const std::int64_t>(tensor.shape, rank)};
  if (tensor.strides == nullptr) return {data, *dtype, std::move(shape), *device};
  return {data, *dtype, std::move(shape), Dims(std::span<const std::int64_t>(tensor.strides, rank)),
          *device};
}

}  // namespace kiln
