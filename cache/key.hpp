// The key of a cache entry: a hash of everything that can change the code object. What goes into it
// is decided by the caller, who passes the ingredients; how they become 128 bits is decided here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache.hpp"

namespace kiln::cache {

/// Hashes the format version of entries, then every ingredient with its length, so that no two
/// lists of ingredients are the same bytes. Not a defence against a forger: that is what the trust
/// checks of the directory (trust.hpp) and the keyed codes (mac.hpp) are for.
Key make_key(std::span<const Ingredient> ingredients);
/// The key of two lists of ingredients, one after the other.
Key make_key(std::span<const Ingredient> first, std::span<const Ingredient> rest);

/// `kiln_`, the readable part of `stem` (a form of kernel, or the name of a user's own) clipped,
/// `_`, the first 64 bits of the key: a valid C identifier of [a-z0-9_], never over 63 bytes,
/// because the file systems and compilers underneath have limits that a fused expression's name
/// would pass.
std::string module_name(std::string_view stem, const Key& key);
inline constexpr std::size_t kMaxModuleName = 63;

/// The ingredients as they are stored beside an entry, for `explain` and for code that was compiled
/// elsewhere: a value above 256 bytes becomes its hash and length.
std::vector<Ingredient> summarise(std::span<const Ingredient> ingredients);

/// The key that the same source has whatever compiles it. Of summarised ingredients.
Key key_without_toolchain(std::vector<Ingredient> ingredients);

}  // namespace kiln::cache
