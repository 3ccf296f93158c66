#include "cache/key.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

#include "base/bytes.hpp"
#include "cache/entry.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kLargestStoredValue = 256;

Key hash(std::string_view bytes) {
  const XXH128_hash_t value = XXH3_128bits(bytes.data(), bytes.size());
  return {value.high64, value.low64};
}

std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  for (const char c : digits) {
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return std::nullopt;
  }
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string Key::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Key> Key::parse(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = parse_hex(text.substr(0, 16));
  const auto low = parse_hex(text.substr(16));
  if (!high || !low) return std::nullopt;
  return Key{*high, *low};
}

Key make_key(std::span<const Ingredient> ingredients) { return make_key(ingredients, {}); }

Key make_key(std::span<const Ingredient> first, std::span<const Ingredient> rest) {
  std::size_t size = 64;
  for (const std::span<const Ingredient> ingredients : {first, rest}) {
    for (const Ingredient& one : ingredients) size += one.tag.size() + one.value.size() + 16;
  }
  std::string bytes;
  bytes.reserve(size);
  base::ByteWriter writer(bytes);
  writer.text("kiln-key");
  writer.u32(kEntryVersion);
  writer.u64(first.size() + rest.size());
  for (const std::span<const Ingredient> ingredients : {first, rest}) {
    for (const Ingredient& ingredient : ingredients) {
      writer.text(ingredient.tag);
      writer.text(ingredient.value);
    }
  }
  return hash(bytes);
}

std::string module_name(std::string_view stem, const Key& key) {
  constexpr std::string_view prefix = "kiln_";
  constexpr std::size_t readable = kMaxModuleName - prefix.size() - 1 - 16;
  std::string name(prefix);
  for (char c : stem.substr(0, readable)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name.push_back(kept ? c : '_');
  }
  return name + fmt::format("_{:016x}", key.high);
}

std::vector<Ingredient> summarise(std::span<const Ingredient> ingredients) {
  std::vector<Ingredient> summary(ingredients.begin(), ingredients.end());
  for (Ingredient& ingredient : summary) {
    if (ingredient.value.size() <= kLargestStoredValue) continue;
    ingredient.value =
        fmt::format("xxh3:{} ({} bytes)", hash(ingredient.value).hex(), ingredient.value.size());
  }
  return summary;
}

Key key_without_toolchain(std::vector<Ingredient> ingredients) {
  std::erase_if(ingredients, [](const Ingredient& one) { return one.tag == "toolchain"; });
  return make_key(ingredients);
}

}  // namespace kiln::cache
