// Little-endian numbers and length-prefixed strings in a byte string: what the formats of the cache
// and of the worker protocol are made of. The reader never reads past its end and remembers that it
// was asked to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::base {

class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}

  void u16(std::uint16_t value) { number(value, 2); }
  void u32(std::uint32_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void raw(std::string_view bytes) { out_.append(bytes); }
  /// A u64 length and the bytes.
  void text(std::string_view bytes) {
    u64(bytes.size());
    raw(bytes);
  }

 private:
  void number(std::uint64_t value, int bytes) {
    char text[8];
    for (int i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> (8 * i) & 0xff);
    out_.append(text, static_cast<std::size_t>(bytes));
  }
  std::string& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  /// False once anything was asked for that is not there; everything read from then on is zero or
  /// empty.
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  std::string_view raw(std::uint64_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view text() { return raw(u64()); }

 private:
  std::uint64_t number(int size) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char byte : raw(static_cast<std::uint64_t>(size))) {
      value |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
      shift += 8;
    }
    return value;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace kiln::base
