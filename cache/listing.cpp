#include "cache/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/entry.hpp"

namespace kiln::cache {

Shards shards_of(const Filter& filter) {
  if (filter.keys.empty()) return all_shards();
  Shards shards;
  for (const Key& key : filter.keys) shards.set(shard_of(key));
  return shards;
}

std::vector<Problem> for_each_item(
    Directory& directory, const Shards& shards,
    const std::function<bool(const base::UniqueFd& shard, const Item&)>& visit) {
  return directory.for_each_shard(
      shards, [&](unsigned, const base::UniqueFd& shard, std::vector<Item>& items) {
        std::erase_if(items, [](const Item& item) { return item.kind != Item::Kind::entry; });
        std::sort(items.begin(), items.end(),
                  [](const Item& a, const Item& b) { return a.key < b.key; });
        return std::all_of(items.begin(), items.end(),
                           [&](const Item& item) { return visit(shard, item); });
      });
}

std::optional<Listing> read_listing(Directory& directory, const base::UniqueFd& shard,
                                    const Item& item) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  Listing listing;
  listing.key = item.key;
  listing.path = fmt::format("{}/{}/{}", directory.path(), item.name.substr(0, 2), item.name);
  listing.file_bytes = static_cast<std::uint64_t>(item.status.st_size);
  listing.last_used = base::modification_time(item.status) / kSecond;
  const Directory::File file = directory.read_head(shard, item.name);
  if (file.state == Directory::File::State::absent) return std::nullopt;
  if (file.state != Directory::File::State::read) {
    listing.problem = file.reason;
    return listing;
  }
  Head head = decode_head(file.bytes);
  listing.problem = head.reason;
  listing.other_version = head.other_version;
  if (!head.reason.empty()) return listing;
  if (head.key != item.key) listing.problem = fmt::format("holds key {}", head.key.hex());
  if (head.file_bytes != listing.file_bytes) {
    listing.problem =
        fmt::format("is {} bytes, its lengths say {}", listing.file_bytes, head.file_bytes);
  }
  listing.metadata = std::move(head.metadata);
  listing.code_bytes = head.code_bytes;
  listing.source_bytes = head.source_bytes;
  return listing;
}

}  // namespace kiln::cache
