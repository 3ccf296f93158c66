// What a caller hands over for one call: devices, streams and views of memory that the caller owns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// `hip` is an AMD GPU through HIP, `cuda` an NVIDIA GPU through the CUDA driver.
enum class DeviceType : std::uint8_t { cpu, hip, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "hip:0", "cuda:1".
std::string to_string(Device device);
/// The inverse; the index may be left out. Throws Error(invalid_argument).
Device parse_device(std::string_view text);

/// A stream of the caller. `native` is a hipStream_t or CUstream (null is the legacy default
/// stream, hipStreamPerThread and its kin are passed through); on the CPU it is null and a call has
/// finished when it returns.
struct Stream {
  Device device;
  void* native = nullptr;
};

/// A typed, strided view of memory that the caller owns: `data` points at element (0, 0, ...);
/// `strides` are in elements, may be zero or negative, and are empty for C order. Elements of the
/// packed dtypes (u4, i4, f4e2m1) are half bytes, and element (0, 0, ...) may be the high half of
/// the byte at `data` (see `from`).
class View {
 public:
  View() = default;
  /// C order. Throws Error(invalid_argument) for a negative size or a size that overflows.
  View(void* data, DType dtype, Dims shape, Device device = {});
  /// Throws Error(invalid_argument) when `shape` and `strides` differ in length.
  View(void* data, DType dtype, Dims shape, Dims strides, Device device = {});

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  Device device() const { return device_; }
  /// Where element (0, 0, ...) is, in elements from `data`: 0, or 1 in the middle of a byte.
  std::int64_t offset() const { return offset_; }
  /// The number of elements; 1 for rank 0.
  std::int64_t size() const;

  /// The view that begins `elements` further on (which may be negative), with the same shape and
  /// strides: row `i` of `matrix` is View(data, dtype, {columns}).from(i * columns).
  View from(std::int64_t elements) const;
  /// The view of other memory, with `offset`, shape and strides as they are.
  View with_data(void* data) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  std::uint8_t offset_ = 0;
  Device device_;
  Dims shape_;
  Dims strides_;
};

/// The strides of a C-ordered array of that shape, in elements.
Dims contiguous_strides(const Dims& shape);

}  // namespace kiln

#pragma GCC visibility pop
