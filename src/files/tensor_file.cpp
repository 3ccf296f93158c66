// Chooses the format by the extension, moves elements between files and memory. What the bytes of
// each format mean is in npy.cpp and safetensors.cpp.
#include "files/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "files/file_io.hpp"
#include "files/format.hpp"
#include "kiln/view.hpp"

namespace kiln::files {
namespace {

constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kSafetensors = ".safetensors";

bool is_npy(std::string_view path) { return path.ends_with(kNpy); }

void check_extension(const std::string& path, Code code) {
  if (is_npy(path) || path.ends_with(kSafetensors)) return;
  throw Error(code,
              fmt::format("{}: expected a file name that ends in .npy or .safetensors", path));
}

std::vector<Located> locate(const InputFile& file) {
  const std::string& path = file.path();
  if (is_npy(path)) {
    const std::uint64_t size = npy_header_size(path, file.head(kNpyProbe), file.size());
    return {decode_npy(path, file.head(size), file.size())};
  }
  const std::uint64_t size =
      safetensors_header_size(path, file.head(kSafetensorsProbe), file.size());
  return decode_safetensors(path, file.head(size), file.size());
}

std::string name_some(const std::vector<Located>& tensors) {
  constexpr std::size_t kMost = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(tensors.size(), kMost); ++i) {
    names += (i ? ", " : "") + tensors[i].info.name;
  }
  if (tensors.size() > kMost) names += fmt::format(" and {} more", tensors.size() - kMost);
  return names;
}

const Located& choose(const TensorPath& path, const std::vector<Located>& tensors) {
  if (is_npy(path.file)) {
    if (!path.tensor) return tensors.front();
    throw Error(Code::invalid_argument,
                fmt::format("read {}: a .npy file holds one array without a name, '{}' was asked "
                            "for",
                            path.file, *path.tensor));
  }
  if (!path.tensor) {
    if (tensors.size() == 1) return tensors.front();
    throw Error(Code::invalid_argument,
                fmt::format("read {}: it holds {} tensors; name one as {}:NAME ({})", path.file,
                            tensors.size(), path.file, name_some(tensors)));
  }
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Located& tensor) {
    return tensor.info.name == *path.tensor;
  });
  if (found != tensors.end()) return *found;
  throw Error(Code::not_found, fmt::format("read {}: no tensor '{}'; it holds {}", path.file,
                                           *path.tensor, name_some(tensors)));
}

/// The strides of an array whose first axis moves fastest.
Dims fortran_strides(const Dims& shape) {
  Dims strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

void swap_bytes(std::span<std::byte> bytes, std::size_t width) {
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

/// The elements of a strided array in C order.
Buffer gather(const TensorData& tensor) {
  const auto width = static_cast<std::size_t>(bits(tensor.dtype) / 8);
  const std::uint64_t bytes = byte_count(tensor.shape, bits(tensor.dtype)).value();
  Buffer result(bytes);
  Dims index(tensor.shape.size());
  std::int64_t element = 0;
  for (std::size_t at = 0; at < bytes; at += width) {
    std::memcpy(
        result.data() + at,
        static_cast<const std::byte*>(tensor.data) + element * static_cast<std::ptrdiff_t>(width),
        width);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      element += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      element -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
  return result;
}

void write_elements(OutputFile& file, const TensorData& tensor) {
  const std::uint64_t bytes = byte_count(tensor.shape, bits(tensor.dtype)).value();
  if (bytes == 0) return;
  if (tensor.strides.empty() || tensor.strides == contiguous_strides(tensor.shape)) {
    file.write(std::span(static_cast<const std::byte*>(tensor.data), bytes));
    return;
  }
  if (bits(tensor.dtype) < 8) {
    throw Error(Code::unsupported, fmt::format("write {}: packed {} must be in C order",
                                               tensor.name, name(tensor.dtype)));
  }
  file.write(gather(tensor).span());
}

void check_dtype(const std::string& path, DType dtype) {
  if (is_npy(path) ? npy_descr(dtype).has_value() : safetensors_name(dtype).has_value()) return;
  throw Error(Code::unsupported,
              is_npy(path)
                  ? fmt::format("write {}: .npy has no type for {}; {}", path, name(dtype),
                                safetensors_name(dtype) ? "write a .safetensors file, or store f32"
                                                        : "store it as u8")
                  : fmt::format("write {}: .safetensors has no type for {}; store it as u8", path,
                                name(dtype)));
}

}  // namespace

Buffer::Buffer(std::size_t size) : size_(size) {
  constexpr std::size_t kAlignment = 64;
  const bool possible = size <= std::numeric_limits<std::size_t>::max() / 2;
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + kAlignment - 1) & ~(kAlignment - 1);
  if (possible) memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (!memory_) throw Error(Code::io, fmt::format("no memory for an array of {} bytes", size));
}

std::optional<std::uint64_t> byte_count(std::span<const std::int64_t> shape, int bits) {
  // Sizes of an empty array count too: strides are made of their product.
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty |= size == 0;
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)),
                               &count)) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  const auto width = static_cast<std::uint64_t>(bits);
  std::uint64_t bytes = 0;  // of whole groups of eight elements, then of the rest
  if (__builtin_mul_overflow(count / 8, width, &bytes)) return std::nullopt;
  if (__builtin_add_overflow(bytes, (count % 8 * width + 7) / 8, &bytes)) return std::nullopt;
  return bytes;
}

void bad_file(const std::string& path, const std::string& what, Code code) {
  throw Error(code, fmt::format("{}: {}", path, what));
}

TensorPath split_tensor_path(std::string_view text) {
  for (std::size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    const std::string_view file = text.substr(0, colon);
    if (is_npy(file) || file.ends_with(kSafetensors)) {
      return {std::string(file), std::string(text.substr(colon + 1))};
    }
  }
  return {std::string(text), std::nullopt};
}

std::vector<TensorInfo> list_tensors(const std::string& path) {
  check_extension(path, Code::invalid_argument);
  std::vector<TensorInfo> result;
  for (Located& tensor : locate(InputFile(path))) result.push_back(std::move(tensor.info));
  return result;
}

HostTensor read_tensor(std::string_view path_and_name) {
  const TensorPath path = split_tensor_path(path_and_name);
  check_extension(path.file, Code::invalid_argument);
  const InputFile file(path.file);
  const std::vector<Located> tensors = locate(file);
  const Located& found = choose(path, tensors);
  if (!found.info.dtype) {
    bad_file(path.file,
             fmt::format("tensor '{}': kiln has no dtype for {}", found.info.name,
                         found.info.dtype_text),
             Code::unsupported);
  }
  HostTensor tensor{found.info.name, *found.info.dtype, found.info.shape,
                    found.fortran_order ? fortran_strides(found.info.shape)
                                        : contiguous_strides(found.info.shape),
                    Buffer(found.bytes)};
  file.read(found.begin, tensor.bytes.span());
  if (found.big_endian) {
    const int parts = tensor.dtype == DType::c64 ? 2 : 1;
    swap_bytes(tensor.bytes.span(), static_cast<std::size_t>(bits(tensor.dtype) / 8 / parts));
  }
  if (tensor.dtype == DType::boolean) {
    for (std::byte& value : tensor.bytes.span()) value = std::byte(value != std::byte(0));
  }
  return tensor;
}

void check_writable(const std::string& path, std::span<const DType> dtypes) {
  check_extension(path, Code::invalid_argument);
  if (is_npy(path) && dtypes.size() != 1) {
    throw Error(Code::invalid_argument,
                fmt::format("write {}: a .npy file holds one array, {} were given; write a "
                            ".safetensors file",
                            path, dtypes.size()));
  }
  for (const DType dtype : dtypes) check_dtype(path, dtype);
  const OutputFile probe(path);
}

void write_tensors(const std::string& path, std::span<const TensorData> tensors) {
  std::vector<DType> dtypes;
  for (const TensorData& tensor : tensors) dtypes.push_back(tensor.dtype);
  check_writable(path, dtypes);
  OutputFile file(path);
  if (is_npy(path)) {
    file.write(encode_npy_header(tensors[0].dtype, tensors[0].shape));
    write_elements(file, tensors[0]);
  } else {
    std::vector<std::size_t> order;
    file.write(encode_safetensors_header(path, tensors, order));
    for (const std::size_t i : order) write_elements(file, tensors[i]);
  }
  file.commit();
}

}  // namespace kiln::files
