// Views of DLPack tensors. Separate from kiln.hpp because it needs the DLPack header, which the
// application brings (Debian: libdlpack-dev). Nothing is copied and nothing is owned: the tensor
// must outlive the view's use.
#pragma once

#include <dlpack/dlpack.h>

#include <string>

#include "kiln/error.hpp"
#include "kiln/view.hpp"

namespace kiln {

namespace detail {

// By the numbers of DLPack 1.1, so that an older header does for newer producers.
inline DType dtype_of(DLDataType type) {
  constexpr int kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6;
  constexpr int kFloat8E4M3 = 10 /* e4m3fn */, kFloat8E4M3Fnuz = 11, kFloat8E5M2 = 12,
                kFloat8E5M2Fnuz = 13;
  if (type.lanes == 1) {
    for (const DTypeInfo& entry : kDTypes) {
      if (entry.bits != type.bits || entry.bits < 8) continue;
      int code = -1;
      switch (entry.kind) {
        case Kind::boolean: code = kBool; break;
        case Kind::unsigned_integer: code = kUInt; break;
        case Kind::signed_integer: code = kInt; break;
        case Kind::complex: code = kComplex; break;
        case Kind::floating:
          code = entry.dtype == DType::bf16         ? kBFloat
                 : entry.dtype == DType::f8e4m3     ? kFloat8E4M3
                 : entry.dtype == DType::f8e4m3fnuz ? kFloat8E4M3Fnuz
                 : entry.dtype == DType::f8e5m2     ? kFloat8E5M2
                 : entry.dtype == DType::f8e5m2fnuz ? kFloat8E5M2Fnuz
                                                    : kFloat;
      }
      if (code == type.code) return entry.dtype;
    }
  }
  throw Error(Code::unsupported, "view_of: DLPack dtype: no kiln dtype has code " +
                                     std::to_string(int(type.code)) + ", " +
                                     std::to_string(int(type.bits)) + " bits and " +
                                     std::to_string(int(type.lanes)) + " lanes");
}

inline Device device_of(DLDevice device) {
  switch (static_cast<int>(device.device_type)) {
    case 1:   // kDLCPU
    case 3:   // kDLCUDAHost: pinned memory of the host
    case 11:  // kDLROCMHost
      return {DeviceType::cpu, 0};
    case 2:  // kDLCUDA
      return {DeviceType::cuda, device.device_id};
    case 10:  // kDLROCM
      return {DeviceType::hip, device.device_id};
    default:
      throw Error(Code::unsupported,
                  "view_of: DLPack device: expected CPU, CUDA or ROCm, got type " +
                      std::to_string(static_cast<int>(device.device_type)));
  }
}

}  // namespace detail

/// A view of a DLPack tensor's memory: data plus byte offset, C order where it has no strides.
/// Throws Error(unsupported) for a dtype or device that kiln has not.
inline View view_of(const DLTensor& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  void* const data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const DType dtype = detail::dtype_of(tensor.dtype);
  const Device device = detail::device_of(tensor.device);
  Dims shape{std::span<const std::int64_t>(tensor.shape, rank)};
  if (tensor.strides == nullptr) return {data, dtype, std::move(shape), device};
  return {data, dtype, std::move(shape), Dims(std::span<const std::int64_t>(tensor.strides, rank)),
          device};
}

}  // namespace kiln
