#include "cache/key.hpp"

#include <fmt/format.h>
#define XXH_STATIC_LINKING_ONLY  // the size of a state
#include <xxhash.h>

#include <charconv>

#include "cache/bytes.hpp"
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

struct KeyHasher::State {
  State() { XXH3_128bits_reset(&hash); }
  void add(std::string_view bytes) { XXH3_128bits_update(&hash, bytes.data(), bytes.size()); }
  XXH3_state_t hash;
};

KeyHasher::KeyHasher(std::uint64_t ingredients) : state_(std::make_unique<State>()) {
  text({"kiln-key"});
  std::string numbers;
  ByteWriter writer(numbers);
  writer.u32(kEntryVersion);
  writer.u64(ingredients);
  state_->add(numbers);
}

KeyHasher::~KeyHasher() = default;

void KeyHasher::text(std::initializer_list<std::string_view> pieces) {
  std::uint64_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  std::string length;
  ByteWriter(length).u64(size);
  state_->add(length);
  for (const std::string_view piece : pieces) state_->add(piece);
}

void KeyHasher::add(std::string_view tag, std::initializer_list<std::string_view> value) {
  text({tag});
  text(value);
}

Key KeyHasher::finish() const {
  const XXH128_hash_t value = XXH3_128bits_digest(&state_->hash);
  return {value.high64, value.low64};
}

Key make_key(std::span<const Ingredient> ingredients) {
  KeyHasher hasher(ingredients.size());
  for (const Ingredient& ingredient : ingredients) hasher.add(ingredient.tag, {ingredient.value});
  return hasher.finish();
}

std::string module_name(std::string_view function, const Key& key) {
  constexpr std::string_view prefix = "kiln_";
  constexpr std::size_t readable = kMaxModuleName - prefix.size() - 1 - 16;
  std::string name(prefix);
  for (char c : function.substr(0, readable)) {
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

}  // namespace kiln::cache
