// Arrays in files: .npy and .safetensors, by extension. A file is data from somewhere else:
// whatever its bytes are, reading it gives the array or an Error that names the file and what is
// wrong.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::files {

/// Memory aligned to 64 bytes, so that an array in it is aligned for any vector width.
class Buffer {
 public:
  Buffer() = default;
  /// Not initialised. Throws Error(io) when there is not that much memory.
  explicit Buffer(std::size_t size);
  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

/// An array in host memory. `strides` are in elements, never negative.
struct HostTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  Buffer bytes;
  const std::byte* data() const { return bytes.data(); }
};

/// One array of a file, without its elements. `dtype` is empty if kiln has no such dtype.
struct TensorInfo {
  std::string name;  ///< empty in .npy
  std::optional<DType> dtype;
  std::string dtype_text;  ///< as the file says it
  Dims shape;
};

/// The arrays of a file in the order of their names. Throws Error(not_found, io, invalid_argument).
std::vector<TensorInfo> list_tensors(const std::string& path);

/// Reads "FILE" or "FILE:TENSOR"; a .safetensors file with one tensor needs no name. Booleans are
/// 0 or 1 whatever the file holds. Throws Error: not_found for a file or tensor that is not there,
/// io for one that cannot be read or contradicts itself, unsupported for a dtype that kiln lacks.
HostTensor read_tensor(std::string_view path_and_name);

/// What is to be written: memory of the caller, strides in elements (empty for C order).
struct TensorData {
  std::string name;  ///< ignored by .npy
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  const void* data = nullptr;
};

/// Writes a file whole or not at all: .npy takes one array, .safetensors any number. Throws
/// Error(invalid_argument) for an extension, name or number of arrays that cannot be, unsupported
/// for a dtype that the format lacks, io when the file cannot be written.
void write_tensors(const std::string& path, std::span<const TensorData> tensors);

/// Throws what write_tensors would throw for that path and those dtypes, before there is anything
/// to write: a wrong output path should fail before the work is done.
void check_writable(const std::string& path, std::span<const DType> dtypes);

/// "FILE", "TENSOR" of "FILE:TENSOR".
struct TensorPath {
  std::string file;
  std::optional<std::string> tensor;
};
TensorPath split_tensor_path(std::string_view path_and_name);

}  // namespace kiln::files
