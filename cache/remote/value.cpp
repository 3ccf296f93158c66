#include "cache/remote/value.hpp"

#include <algorithm>

namespace kiln::cache {
namespace {

constexpr std::string_view kMagic = "KREMOTE1";

}  // namespace

std::string encode_value(const Key& key, std::string_view file, const Secret& secret) {
  const Mac mac = secret.sign_entry(key, file);
  std::string value(kMagic);
  value.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  return value += file;
}

DecodedValue decode_value(const Key& key, std::string_view bytes, const Secret& secret) {
  if (bytes.size() < kRemoteHead || !bytes.starts_with(kMagic)) {
    return {std::nullopt, "is not a value of kiln's"};
  }
  Mac mac{};
  std::copy_n(bytes.begin() + kMagic.size(), mac.size(), mac.begin());
  const std::string_view file = bytes.substr(kRemoteHead);
  if (!secret.accepts_entry(mac, key, file)) {
    return {std::nullopt, "was not signed with this KILN_CACHE_SECRET, or for another key"};
  }
  Decoded decoded = decode(key, file, Parts::code);
  if (!decoded.entry) return {std::nullopt, std::move(decoded.reason)};
  return {Loaded{*std::move(decoded.entry), std::string(file)}, {}};
}

}  // namespace kiln::cache
