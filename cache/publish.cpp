// The writing half of Directory: how an entry gets into the directory, and how its bound is kept.
#include <fmt/format.h>

#include <cerrno>

#include "base/atomic_file.hpp"
#include "cache/directory.hpp"
#include "cache/key_lock.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {

bool Directory::publish(const Key& key, std::string_view bytes) {
  if (!options_.writable) return false;
  if (options_.max_size != 0 && bytes.size() > options_.max_size) {
    report("entry not kept",
           fmt::format("{} bytes, the bound is {}", bytes.size(), options_.max_size));
    return false;
  }
  const std::shared_ptr<const base::UniqueFd> root = this->root(true);
  if (!root) return false;
  const base::UniqueFd shard = this->shard(*root, shard_of(key), true);
  if (!shard) return false;

  const std::string name = entry_name(key);
  base::AtomicFile file(io_, shard.get(), name, {.mode = 0600, .sync = true});
  if (!file.write(bytes) || !file.commit()) {
    report("entry not kept", base::describe_errno(file.error()));
    return false;
  }
  counters_.add(Count::published);
  counters_.add(Count::published_bytes, bytes.size());
  keep_bound(*root, shard_of(key), name);
  return true;
}

void Directory::keep_bound(const base::UniqueFd& root, unsigned number, const std::string& keep) {
  const std::int64_t now = io_.now();
  const Share share = share_of(number, options_.max_size);
  std::vector<Candidate> candidates;
  std::vector<unsigned> shards;
  std::uint64_t total = 0;
  // Without a bound only what dead processes left beside this entry is cleaned up.
  const unsigned first = options_.max_size == 0 ? number : share.first;
  const unsigned count = options_.max_size == 0 ? 1 : share.count;
  for (unsigned i = first; i < first + count; ++i) {
    const base::UniqueFd shard = this->shard(root, i, false);
    if (!shard) continue;
    std::vector<Item> items;
    if (!scan(shard, items)) report("sub-directory not listed", base::describe_errno(errno));
    for (const Item& item : items) {
      if (item.kind == Item::Kind::entry) {
        total += static_cast<std::uint64_t>(item.status.st_size);
        candidates.push_back({item.name, static_cast<std::uint64_t>(item.status.st_size),
                              base::modification_time(item.status)});
        shards.push_back(i);
      } else if (is_abandoned(base::modification_time(item.status), now)) {
        if (item.kind == Item::Kind::temporary) remove(shard, item.name);
        if (item.kind == Item::Kind::lock) remove_free_lock(io_, shard, item.name);
      }
    }
  }
  if (options_.max_size == 0 || total <= share.max_bytes) return;

  const EvictionPolicy policy{now, share.low_bytes, std::nullopt};
  for (const std::size_t victim : choose_victims(candidates, policy)) {
    if (candidates[victim].name == keep) continue;
    const base::UniqueFd shard = this->shard(root, shards[victim], false);
    if (!shard || !remove(shard, candidates[victim].name)) continue;
    counters_.add(Count::evicted);
    counters_.add(Count::evicted_bytes, candidates[victim].bytes);
  }
}

}  // namespace kiln::cache
