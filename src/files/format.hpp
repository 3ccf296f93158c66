// What the two formats share: a header that says where in the file each array lies, checked against
// the size of the file, and the writer's plan. Files are opened in file_io.hpp, formats know bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/tensor_file.hpp"
#include "kiln/error.hpp"

namespace kiln::files {

/// Where an array lies. `begin` and `bytes` have been checked: they lie in the file and agree with
/// the shape and dtype.
struct Located {
  TensorInfo info;
  bool fortran_order = false;
  bool big_endian = false;
  std::uint64_t begin = 0;  ///< from the start of the file
  std::uint64_t bytes = 0;
};

/// Bytes of that many elements, rounded up for the packed dtypes; nothing if it overflows or a size
/// is negative.
std::optional<std::uint64_t> byte_count(std::span<const std::int64_t> shape, int bits);

[[noreturn]] void bad_file(const std::string& path, const std::string& what, Code code = Code::io);

/// The first bytes of a .npy file that decode_npy needs: call it with what there is of the first
/// kNpyProbe bytes of a file of `file_size`.
inline constexpr std::size_t kNpyProbe = 12;
std::uint64_t npy_header_size(const std::string& path, std::string_view probe,
                              std::uint64_t file_size);
/// `header` holds the first npy_header_size() bytes.
Located decode_npy(const std::string& path, std::string_view header, std::uint64_t file_size);
/// Magic, header and padding; the array follows in C order.
std::string encode_npy_header(DType dtype, const Dims& shape);
/// The type of .npy for a dtype ("<f4"), or nothing.
std::optional<std::string> npy_descr(DType dtype);

inline constexpr std::size_t kSafetensorsProbe = 8;
std::uint64_t safetensors_header_size(const std::string& path, std::string_view probe,
                                      std::uint64_t file_size);
/// `header` holds the first safetensors_header_size() bytes. Sorted by name.
std::vector<Located> decode_safetensors(const std::string& path, std::string_view header,
                                        std::uint64_t file_size);
/// The header, and in `order` the tensors as their data follows it.
std::string encode_safetensors_header(const std::string& path, std::span<const TensorData> tensors,
                                      std::vector<std::size_t>& order);
/// The name of .safetensors for a dtype ("BF16"), or nothing.
std::optional<std::string_view> safetensors_name(DType dtype);

}  // namespace kiln::files
