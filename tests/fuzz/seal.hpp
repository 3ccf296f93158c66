// Makes the digest and checksum of mutated bytes right, because no mutation gets past those by
// itself.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string>

#include "base/bytes.hpp"

namespace kiln::cache {

inline void put(std::string& bytes, std::size_t at, std::uint64_t value) {
  std::string number;
  base::ByteWriter(number).u64(value);
  if (at <= bytes.size() && bytes.size() - at >= number.size()) bytes.replace(at, 8, number);
}

/// `head` bytes end with an XXH3-64 of what is before it, the file with an XXH3-128.
inline void seal(std::string& bytes, std::uint64_t head) {
  if (head >= 8 && head <= bytes.size()) put(bytes, head - 8, XXH3_64bits(bytes.data(), head - 8));
  if (bytes.size() < 16) return;
  const std::size_t body = bytes.size() - 16;
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), body);
  put(bytes, body, checksum.high64);
  put(bytes, body + 8, checksum.low64);
}

}  // namespace kiln::cache
