// The entries of a directory one after another, for lists and for moving them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cache/directory.hpp"
#include "kiln/cache.hpp"

namespace kiln::cache {

/// The sub-directories that entries of that filter can be in.
Shards shards_of(const Filter& filter);

/// Calls `visit` for every entry's file of those sub-directories, by key, until it returns false.
/// Only the names of one sub-directory are in memory. Returns what could not be looked at, as
/// Directory::for_each_shard().
std::vector<Problem> for_each_item(
    Directory& directory, const Shards& shards,
    const std::function<bool(const base::UniqueFd& shard, const Item&)>& visit);

/// The head of that file; nothing if it is gone.
std::optional<Listing> read_listing(Directory& directory, const base::UniqueFd& shard,
                                    const Item& item);

}  // namespace kiln::cache
