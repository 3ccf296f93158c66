// NumPy's .npy, format versions 1.0 to 3.0: magic, version, header length, a Python dictionary with
// the element type, the order and the shape, then the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <string>

#include "base/bytes.hpp"
#include "files/format.hpp"

namespace kiln::files {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxNpyHeader = 1 << 20;

struct NpyType {
  std::string_view text;  ///< without the byte order
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {
    {"b1", DType::boolean}, {"u1", DType::u8},  {"u2", DType::u16}, {"u4", DType::u32},
    {"u8", DType::u64},     {"i1", DType::i8},  {"i2", DType::i16}, {"i4", DType::i32},
    {"i8", DType::i64},     {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},
    {"c8", DType::c64},
};

/// A Python dictionary of a string, a bool and a tuple of integers; nothing else may be in it.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  struct Fields {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
  };

  Fields read() {
    Fields fields;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !fields.descr) {
        fields.descr = descr();
      } else if (key == "fortran_order" && !fields.fortran_order) {
        fields.fortran_order = boolean();
      } else if (key == "shape" && !fields.shape) {
        fields.shape = tuple();
      } else {
        fail(fmt::format("'{}' is unknown or there twice", printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("something follows the dictionary");
    if (!fields.descr) fail("'descr' is missing");
    if (!fields.fortran_order) fail("'fortran_order' is missing");
    if (!fields.shape) fail("'shape' is missing");
    return fields;
  }

  static std::string printable(std::string_view text) {
    std::string result;
    for (const char c : text.substr(0, 40)) result += c >= 0x20 && c < 0x7f ? c : '?';
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    bad_file(path_, fmt::format("the .npy header is not what NumPy writes: {} (near character {})",
                                what, at_));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }

  std::string string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = text_.find(quote, at_);
    if (end == text_.npos) fail("a string does not end");
    std::string result(text_.substr(at_, end - at_));
    if (result.find('\\') != result.npos) fail("a string has an escape in it");
    at_ = end + 1;
    return result;
  }

  std::string descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      bad_file(path_, "its elements are structures; kiln reads arrays of numbers",
               Code::unsupported);
    }
    return string();
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("expected True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      sizes.push_back(integer());
      if (!accept(',')) {
        expect(')');
        if (sizes.size() == 1) fail("the shape is a number and not a tuple");
        break;
      }
    }
    return sizes;
  }

  std::int64_t integer() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a size does not fit 64 bits");
    if (error != std::errc()) fail("expected a size");
    at_ = static_cast<std::size_t>(end - text_.data());
    if (value < 0) fail(fmt::format("the size {} is negative", value));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return value;
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

DType dtype_of(const std::string& path, std::string_view descr, bool& big_endian) {
  const std::string shown = HeaderReader::printable(descr);
  if (descr.empty() || std::string_view("<>|=").find(descr.front()) == descr.npos) {
    bad_file(path, fmt::format("the element type '{}' does not begin with a byte order", shown));
  }
  big_endian = descr.front() == '>';
  const std::string_view type = descr.substr(1);
  for (const NpyType& entry : kNpyTypes) {
    if (entry.text == type) return entry.dtype;
  }
  const std::string_view advice =
      type.starts_with('O')   ? "; it holds Python objects, convert it with NumPy first"
      : type == "V2"          ? "; bf16 has no type in .npy, write it as .safetensors"
      : type == "c16"         ? "; convert it to complex64 first"
      : type.starts_with('f') ? "; convert it to float64 first"
                              : "";
  bad_file(path, fmt::format("kiln has no dtype for the NumPy type '{}'{}", shown, advice),
           Code::unsupported);
}

}  // namespace

std::uint64_t npy_header_size(const std::string& path, std::string_view probe,
                              std::uint64_t file_size) {
  if (file_size == 0) bad_file(path, "the file is empty");
  if (!probe.starts_with(kMagic.substr(0, probe.size()))) {
    bad_file(path, "not a .npy file: it does not begin with \\x93NUMPY");
  }
  if (probe.size() < 10) {
    bad_file(path,
             fmt::format("truncated: {} bytes, the smallest .npy header is longer", file_size));
  }
  const auto major = static_cast<unsigned char>(probe[6]);
  const auto minor = static_cast<unsigned char>(probe[7]);
  if (major < 1 || major > 3 || minor != 0) {
    bad_file(path, fmt::format("format version {}.{}; kiln reads 1.0, 2.0 and 3.0", major, minor),
             Code::unsupported);
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (probe.size() < 8 + length_bytes) bad_file(path, "truncated: the header's length is cut off");
  base::ByteReader reader(probe.substr(8));
  const std::uint64_t length = major == 1 ? reader.u16() : reader.u32();
  const std::uint64_t size = 8 + length_bytes + length;
  if (length > kMaxNpyHeader) {
    bad_file(path, fmt::format("a header of {} bytes; the most that kiln reads is {}", length,
                               kMaxNpyHeader));
  }
  if (size > file_size) {
    bad_file(path,
             fmt::format("truncated: the header needs {} bytes, the file has {}", size, file_size));
  }
  return size;
}

Located decode_npy(const std::string& path, std::string_view header, std::uint64_t file_size) {
  const std::size_t start = header[6] == 1 ? 10 : 12;
  const HeaderReader::Fields fields = HeaderReader(path, header.substr(start)).read();
  Located result;
  result.info.dtype = dtype_of(path, *fields.descr, result.big_endian);
  result.info.dtype_text = *fields.descr;
  result.info.shape = Dims(std::span<const std::int64_t>(*fields.shape));
  result.fortran_order = *fields.fortran_order;
  const auto bytes = byte_count(*fields.shape, bits(*result.info.dtype));
  if (!bytes) {
    bad_file(path, fmt::format("the shape ({}) has more bytes than 64 bits can count",
                               fmt::join(*fields.shape, ", ")));
  }
  result.begin = header.size();
  result.bytes = *bytes;
  const std::uint64_t there = file_size - result.begin;
  if (there != *bytes) {
    bad_file(path, fmt::format("{}: a {} array of shape ({}) has {} bytes, the file has {} after "
                               "its header",
                               there < *bytes ? "truncated" : "too long", *fields.descr,
                               fmt::join(*fields.shape, ", "), *bytes, there));
  }
  return result;
}

std::optional<std::string> npy_descr(DType dtype) {
  for (const NpyType& entry : kNpyTypes) {
    if (entry.dtype == dtype) return (bits(dtype) == 8 ? "|" : "<") + std::string(entry.text);
  }
  return std::nullopt;
}

std::string encode_npy_header(DType dtype, const Dims& shape) {
  std::string sizes = fmt::format("{}", fmt::join(shape.begin(), shape.end(), ", "));
  if (shape.size() == 1) sizes += ",";
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                       npy_descr(dtype).value(), sizes);
  // The elements begin at a multiple of 64; version 2.0 only where 1.0 cannot hold the header.
  const bool wide = dictionary.size() + 64 > 0xffff;
  const std::size_t prefix = wide ? 12 : 10;
  const std::size_t total = (prefix + dictionary.size() + 1 + 63) / 64 * 64;
  dictionary.append(total - prefix - dictionary.size() - 1, ' ');
  dictionary += '\n';
  std::string result(kMagic);
  result += wide ? '\x02' : '\x01';
  result += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) {
    result += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  }
  return result + dictionary;
}

}  // namespace kiln::files
