// The key of a cache entry: a hash of everything that can change the code object. What goes into it
// is decided by the caller, who passes the ingredients; how they become 128 bits is decided here.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cache {

/// XXH3-128 of the ingredients. Not a defence against a forger: that is what the trust checks of
/// the directory are for (trust.hpp).
struct Key {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  /// 32 lower-case hex digits.
  std::string hex() const;
  /// The inverse of hex(); nothing for any other text.
  static std::optional<Key> parse(std::string_view text);
  friend auto operator<=>(const Key&, const Key&) = default;
};

/// One thing that changes the code, with a tag that says what it is. A tag may come several times
/// and the order counts (compile options). The tags kiln uses, and why each is in the key:
///   source      the complete text, preamble included: it is what is compiled
///   option      one per compile option, in order: -O2 -O0 is not -O0 -O2
///   target      gfx90a:sramecc+:xnack-, with its features: code for one does not run on another
///   toolchain   its identity (cache.md): the same source gives other code with another compiler
///   wave_size   wave32 and wave64 code differ on targets that have both
///   env.NAME    environment variables that change what the compiler emits
struct Ingredient {
  std::string tag;
  std::string value;
  friend bool operator==(const Ingredient&, const Ingredient&) = default;
};

/// Hashes the format version of entries, then every ingredient with its length, so that no two
/// lists of ingredients are the same bytes.
Key make_key(std::span<const Ingredient> ingredients);

/// `kiln_`, the readable part of `function` clipped, `_`, the first 64 bits of the key: a valid C
/// identifier of [a-z0-9_], never over 63 bytes, because the file systems and compilers underneath
/// have limits that a fused expression's name would pass.
std::string module_name(std::string_view function, const Key& key);
inline constexpr std::size_t kMaxModuleName = 63;

/// The ingredients as they are stored beside an entry, for `explain`: a value above 256 bytes
/// becomes its hash and length.
std::vector<Ingredient> summarise(std::span<const Ingredient> ingredients);

}  // namespace kiln::cache

template <>
struct std::hash<kiln::cache::Key> {
  std::size_t operator()(const kiln::cache::Key& key) const noexcept { return key.low; }
};
