#include "cache/remote/value.hpp"

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kMagic = "KREMOTE1";
constexpr std::string_view kPointerMagic = "KSOURCE1";
constexpr std::string_view kPointerPurpose = "source";
constexpr std::size_t kKeyBytes = 16;

std::string_view text_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

/// Of bytes that are long enough.
Mac mac_of(std::string_view bytes) {
  Mac mac{};
  std::copy_n(bytes.begin(), mac.size(), mac.begin());
  return mac;
}

std::string bytes_of(const Key& key) {
  std::string bytes;
  base::ByteWriter writer(bytes);
  writer.u64(key.high);
  writer.u64(key.low);
  return bytes;
}

}  // namespace

std::string encode_value(const Key& key, std::string_view file, const Secret& secret) {
  std::string value(kMagic);
  value += text_of(secret.sign_entry(key, file));
  return value += file;
}

DecodedValue decode_value(const Key& key, std::string_view bytes, const Secret& secret) {
  if (bytes.size() < kRemoteHead || !bytes.starts_with(kMagic)) {
    return {std::nullopt, "is not a value of kiln's"};
  }
  const std::string_view file = bytes.substr(kRemoteHead);
  if (!secret.accepts_entry(mac_of(bytes.substr(kMagic.size())), key, file)) {
    return {std::nullopt, "was not signed with this KILN_CACHE_SECRET, or for another key"};
  }
  Decoded decoded = decode(key, file, Parts::code);
  if (!decoded.entry) return {std::nullopt, std::move(decoded.reason)};
  return {Loaded{*std::move(decoded.entry), std::string(file)}, {}};
}

std::string encode_pointer(const Key& source, const Key& entry, const Secret& secret) {
  const std::string key = bytes_of(entry);
  std::string pointer(kPointerMagic);
  pointer += text_of(secret.sign(kPointerPurpose, bytes_of(source) + key));
  return pointer += key;
}

DecodedPointer decode_pointer(const Key& source, std::string_view bytes, const Secret& secret) {
  if (bytes.size() != kPointerMagic.size() + kMacBytes + kKeyBytes ||
      !bytes.starts_with(kPointerMagic)) {
    return {std::nullopt, "is not a value of kiln's"};
  }
  const std::string_view key = bytes.substr(kPointerMagic.size() + kMacBytes);
  if (!secret.accepts(mac_of(bytes.substr(kPointerMagic.size())), kPointerPurpose,
                      bytes_of(source) + std::string(key))) {
    return {std::nullopt, "was not signed with this KILN_CACHE_SECRET, or for another source"};
  }
  base::ByteReader reader(key);
  const std::uint64_t high = reader.u64();
  return {Key{high, reader.u64()}, {}};
}

}  // namespace kiln::cache
