// What DLPack's numbers for dtypes and devices mean, without its header: for kiln/dlpack.hpp and
// the C API.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kiln/dtype.hpp"
#include "kiln/view.hpp"

namespace kiln::detail {

// By the numbers of DLPack 1.1, so that an older header does for newer producers.

struct DlpackDType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
};

/// Nothing for the packed dtypes: DLPack has other layouts for sub-bytes.
constexpr std::optional<DlpackDType> dlpack_dtype(DType dtype) {
  constexpr std::uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6;
  constexpr std::uint8_t kFloat8E4M3 = 10 /* e4m3fn */, kFloat8E4M3Fnuz = 11, kFloat8E5M2 = 12,
                         kFloat8E5M2Fnuz = 13;
  const DTypeInfo& entry = info(dtype);
  if (entry.bits < 8) return std::nullopt;
  const auto bits = static_cast<std::uint8_t>(entry.bits);
  switch (entry.kind) {
    case Kind::boolean: return DlpackDType{kBool, bits};
    case Kind::unsigned_integer: return DlpackDType{kUInt, bits};
    case Kind::signed_integer: return DlpackDType{kInt, bits};
    case Kind::complex: return DlpackDType{kComplex, bits};
    case Kind::floating: break;
  }
  switch (dtype) {
    case DType::bf16: return DlpackDType{kBFloat, bits};
    case DType::f8e4m3: return DlpackDType{kFloat8E4M3, bits};
    case DType::f8e4m3fnuz: return DlpackDType{kFloat8E4M3Fnuz, bits};
    case DType::f8e5m2: return DlpackDType{kFloat8E5M2, bits};
    case DType::f8e5m2fnuz: return DlpackDType{kFloat8E5M2Fnuz, bits};
    default: return DlpackDType{kFloat, bits};
  }
}

/// Of the dtypes in their order; no bits where DLPack has none.
inline constexpr std::array<DlpackDType, kDTypes.size()> kDlpackDTypes = [] {
  std::array<DlpackDType, kDTypes.size()> types;
  for (std::size_t i = 0; i < types.size(); ++i) {
    types[i] = dlpack_dtype(kDTypes[i].dtype).value_or(DlpackDType{});
  }
  return types;
}();

constexpr std::optional<DType> dtype_of_dlpack(int code, int bits, int lanes) {
  if (lanes != 1 || bits == 0) return std::nullopt;
  for (std::size_t i = 0; i < kDlpackDTypes.size(); ++i) {
    if (kDlpackDTypes[i].code == code && kDlpackDTypes[i].bits == bits) return kDTypes[i].dtype;
  }
  return std::nullopt;
}

constexpr std::optional<Device> device_of_dlpack(int type, int index) {
  switch (type) {
    case 1:   // kDLCPU
    case 3:   // kDLCUDAHost: pinned memory of the host
    case 11:  // kDLROCMHost
      return Device{DeviceType::cpu, 0};
    case 2:  // kDLCUDA
      return Device{DeviceType::cuda, index};
    case 10:  // kDLROCM
      return Device{DeviceType::hip, index};
    default: return std::nullopt;
  }
}

constexpr int dlpack_device_type(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return 1;
    case DeviceType::cuda: return 2;
    case DeviceType::hip: return 10;
  }
  return 1;
}

}  // namespace kiln::detail
