// What people and tools do with a cache (kiln/cache.hpp), but for moving entries (transfer.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "cache/cache.hpp"
#include "cache/key_lock.hpp"
#include "cache/listing.hpp"
#include "kiln/cache.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::string path_in(const Directory& directory, const std::string& name) {
  return fmt::format("{}/{}/{}", directory.path(), name.substr(0, 2), name);
}

std::string other_path(const Directory& directory, unsigned shard, const std::string& name) {
  return fmt::format("{}/{:02x}/{}", directory.path(), shard, name);
}

/// The user's directory, or null. Throws Error(io) if it cannot be used: whoever asked wants to
/// know.
Directory* readable(Cache& cache) {
  Directory* const directory = cache.directory();
  const std::string reason = directory == nullptr ? "" : directory->unreadable();
  if (!reason.empty()) throw Error(Code::io, fmt::format("cache: {}", reason));
  return directory;
}

/// Adds the problems of paths that have none yet.
void add_new(std::vector<Problem>& problems, const std::vector<Problem>& more) {
  for (const Problem& problem : more) {
    const auto same = [&](const Problem& other) { return other.path == problem.path; };
    if (std::none_of(problems.begin(), problems.end(), same)) problems.push_back(problem);
  }
}

/// "2 directories cannot be used, PATH (REASON) first: ...".
std::string describe_closed(const std::vector<Problem>& closed) {
  const bool several = closed.size() > 1;
  return fmt::format("{} cannot be used, {} ({}){}: make {} yours alone (chmod 700), or remove {}",
                     several ? fmt::format("{} directories", closed.size()) : "1 directory",
                     closed[0].path, closed[0].reason, several ? " first" : "",
                     several ? "them" : "it", several ? "them" : "it");
}

/// What could not be deleted, as far as an error names it.
struct Failures {
  std::size_t count = 0;  ///< files
  std::string first;
  std::vector<Problem> closed;  ///< directories that could not be looked at

  void add(const std::string& path, int error) {
    if (count++ == 0) first = fmt::format("{}: {}", path, base::describe_errno(error));
  }
  /// Throws Error(io) if there is anything.
  void check(std::string_view what, const Directory& directory) const {
    if (count == 0 && closed.empty()) return;
    std::string reason;
    if (count != 0) {
      reason = fmt::format(
          "{} cannot be removed, {} first: make the directory writable, or remove them as its "
          "owner",
          count == 1 ? "1 file" : fmt::format("{} files", count), first);
    }
    if (!closed.empty()) reason += (reason.empty() ? "" : "; ") + describe_closed(closed);
    throw Error(Code::io, fmt::format("cache {}: {}: {}", what, directory.path(), reason));
  }
};

/// Calls `visit` for every file that lies beside the entries. Returns what could not be looked at.
std::vector<Problem> for_each_left(
    Directory& directory,
    const std::function<void(unsigned shard, const base::UniqueFd&, const Item&)>& visit) {
  return directory.for_each_shard(all_shards(), [&](unsigned number, const base::UniqueFd& shard,
                                                    const std::vector<Item>& items) {
    for (const Item& item : items) {
      if (item.kind != Item::Kind::entry) visit(number, shard, item);
    }
    return true;
  });
}

/// What verify() reports of what dead processes have left, and with `repair` its removal.
void verify_left(Directory& directory, bool repair, std::vector<Problem>& problems) {
  const std::int64_t now = directory.now();
  const auto look = [&](unsigned number, const base::UniqueFd& shard, const Item& item) {
    if (!is_abandoned(base::modification_time(item.status), now)) return;
    Problem problem{other_path(directory, number, item.name), {}, false};
    switch (item.kind) {
      case Item::Kind::temporary:
        problem.reason = "was left unfinished by a process that is gone";
        problem.repaired = repair && directory.remove(shard, item.name);
        break;
      case Item::Kind::lock:
        problem.reason = "is a lock that nobody has used for long";
        problem.repaired = repair && remove_free_lock(directory.io(), shard, item.name);
        break;
      default: problem.reason = "is not a file of the cache";
    }
    problems.push_back(std::move(problem));
  };
  add_new(problems, for_each_left(directory, look));
}

/// Deletes the locks that nobody holds, however new, and what dead processes left unfinished.
void sweep(Directory& directory, Failures& failures) {
  const std::int64_t now = directory.now();
  const auto delete_left = [&](unsigned number, const base::UniqueFd& shard, const Item& item) {
    bool gone = true;
    errno = 0;
    if (item.kind == Item::Kind::lock) {
      gone = remove_free_lock(directory.io(), shard, item.name) || errno == EWOULDBLOCK;
    } else if (item.kind == Item::Kind::temporary &&
               is_abandoned(base::modification_time(item.status), now)) {
      gone = directory.remove(shard, item.name);
    }
    if (!gone && errno != ENOENT) failures.add(other_path(directory, number, item.name), errno);
  };
  add_new(failures.closed, for_each_left(directory, delete_left));
}

/// trim() that returns what stays instead of throwing.
Removed remove_entries(Cache& cache, Directory& directory, const TrimPolicy& policy,
                       Failures& failures) {
  std::vector<Listing> listings;
  failures.closed = for_each(cache, policy.filter, [&](const Listing& listing) {
    listings.push_back(listing);
    return true;
  });
  std::vector<Candidate> candidates;
  for (const Listing& listing : listings) {
    candidates.push_back({listing.path, listing.file_bytes, listing.last_used * kNanoseconds});
  }
  EvictionPolicy decide{directory.now(), policy.max_size, std::nullopt};
  if (policy.unused_for) decide.unused_for = policy.unused_for->count() * kNanoseconds;
  if (!policy.max_size && !policy.unused_for) decide.max_bytes = 0;

  Removed removed;
  const std::shared_ptr<const base::UniqueFd> root = directory.root(false);
  if (!root) return removed;
  for (const std::size_t victim : choose_victims(candidates, decide)) {
    Listing& listing = listings[victim];
    if (!policy.dry_run) {
      const unsigned number = shard_of(listing.key);
      const Opened shard = directory.open_shard(*root, number, false);
      if (shard.state == Opened::State::missing) continue;
      if (shard.state != Opened::State::open) {
        const std::string path = fmt::format("{}/{:02x}", directory.path(), number);
        add_new(failures.closed, {{path, shard.reason, false}});
        continue;
      }
      if (!directory.remove(shard.directory, entry_name(listing.key))) {
        if (errno != ENOENT) failures.add(listing.path, errno);
        continue;
      }
    }
    removed.bytes += listing.file_bytes;
    removed.entries.push_back(std::move(listing));
  }
  return removed;
}

}  // namespace

std::string directory(const Cache& cache) { return cache.config().directory; }

std::string health_error(Cache& cache) { return cache.health_error(); }

bool Filter::matches(const Listing& listing) const {
  const std::string& whole = listing.metadata.target;
  if (!target.empty() && target != whole && target != whole.substr(0, whole.find(':')))
    return false;
  if (!function.empty() && function != listing.metadata.function) return false;
  return keys.empty() || std::find(keys.begin(), keys.end(), listing.key) != keys.end();
}

std::vector<Problem> for_each(Cache& cache, const Filter& filter,
                              const std::function<bool(const Listing&)>& visit) {
  Directory* const directory = readable(cache);
  if (directory == nullptr) return {};
  const auto look = [&](const base::UniqueFd& shard, const Item& item) {
    const std::optional<Listing> listing = read_listing(*directory, shard, item);
    return !listing || !filter.matches(*listing) || visit(*listing);
  };
  return for_each_item(*directory, shards_of(filter), look);
}

std::optional<Listing> find_listing(Cache& cache, const Key& key) {
  Directory* const directory = readable(cache);
  const std::shared_ptr<const base::UniqueFd> root = directory ? directory->root(false) : nullptr;
  const base::UniqueFd shard =
      root ? directory->shard(*root, shard_of(key), false, true) : base::UniqueFd();
  Item item{Item::Kind::entry, entry_name(key), key, {}};
  if (!shard || directory->io().stat_at(shard.get(), item.name.c_str(), item.status) != 0)
    return {};
  return read_listing(*directory, shard, item);
}

std::vector<Listing> list(Cache& cache, const Filter& filter) {
  std::vector<Listing> listings;
  const std::vector<Problem> closed = for_each(cache, filter, [&](const Listing& listing) {
    listings.push_back(listing);
    return true;
  });
  if (!closed.empty()) {
    throw Error(Code::io,
                fmt::format("cache list: {}: {}", directory(cache), describe_closed(closed)));
  }
  return listings;
}

Key resolve(Cache& cache, std::string_view prefix) {
  const bool hex = !prefix.empty() && prefix.size() <= 32 &&
                   prefix.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!hex) {
    throw Error(Code::invalid_argument,
                fmt::format("cache: key '{}': expected 1 to 32 lower-case hex digits", prefix));
  }
  Shards shards;
  for (unsigned number = 0; number < shards.size(); ++number) {
    shards[number] = fmt::format("{:02x}", number).starts_with(prefix.substr(0, 2));
  }
  std::vector<Key> found;
  std::vector<Problem> closed;
  if (Directory* const directory = readable(cache)) {
    closed = for_each_item(*directory, shards, [&](const base::UniqueFd&, const Item& item) {
      if (item.name.starts_with(prefix)) found.push_back(item.key);
      return found.size() < 2;
    });
  }
  if (found.empty() && !closed.empty()) {
    throw Error(Code::io, fmt::format("cache: key '{}': no such entry in what can be read; {}",
                                      prefix, describe_closed(closed)));
  }
  if (found.empty()) {
    throw Error(Code::not_found, fmt::format("cache: key '{}': no such entry", prefix));
  }
  if (found.size() > 1) {
    throw Error(Code::invalid_argument,
                fmt::format("cache: key '{}': several entries start so, {} and {} among them",
                            prefix, found[0].hex(), found[1].hex()));
  }
  return found[0];
}

Entry read(Cache& cache, const Key& key) {
  if (std::optional<Entry> entry = cache.read(key)) return *std::move(entry);
  throw Error(Code::not_found,
              fmt::format("cache {}: there is no usable entry {}", directory(cache), key.hex()));
}

std::string path_of(const Cache& cache, const Key& key) {
  return fmt::format("{}/{:02x}/{}", directory(cache), shard_of(key), entry_name(key));
}

Stats stats(Cache& cache) { return cache.stats(); }

void zero_stats(Cache& cache) {
  if (cache.zero_stats()) return;
  throw Error(Code::io,
              fmt::format("cache {}: the counters could not be written", directory(cache)));
}

Usage usage(Cache& cache) {
  Usage usage;
  usage.max_size = cache.config().max_size;
  Directory* const directory = readable(cache);
  if (directory == nullptr) return usage;
  const auto count = [&](unsigned, const base::UniqueFd&, const std::vector<Item>& items) {
    for (const Item& item : items) {
      usage.temporaries += item.kind == Item::Kind::temporary;
      if (item.kind != Item::Kind::entry) continue;
      ++usage.entries;
      usage.bytes += static_cast<std::uint64_t>(item.status.st_size);
    }
    return true;
  };
  usage.problems = directory->for_each_shard(all_shards(), count);
  const auto closed =
      directory->scan_quarantine([&](const base::UniqueFd&, const Item&) { ++usage.quarantined; });
  if (closed) usage.problems.push_back(*closed);
  return usage;
}

Verification verify(Cache& cache, bool repair) {
  Verification result;
  Directory* const directory = readable(cache);
  if (directory == nullptr) return result;
  const auto check = [&](const base::UniqueFd& shard, const Item& item) {
    const Directory::File file = directory->read_file(shard, item.name, kMaxEntryBytes);
    if (file.state == Directory::File::State::absent) return true;  // evicted meanwhile
    std::string reason = file.reason;
    if (file.state == Directory::File::State::read) {
      const Decoded decoded = decode(item.key, file.bytes, Parts::all);
      if (decoded.other_version) {
        ++result.other_versions;
        return true;
      }
      reason = decoded.reason;
    }
    ++result.entries;
    result.bytes += file.bytes.size();
    if (reason.empty()) return true;
    const bool repaired = repair && file.state != Directory::File::State::unavailable &&
                          directory->quarantine(shard, item.name, &item.status, reason);
    result.problems.push_back({path_in(*directory, item.name), reason, repaired});
    return true;
  };
  add_new(result.problems, for_each_item(*directory, all_shards(), check));
  verify_left(*directory, repair, result.problems);
  return result;
}

Removed trim(Cache& cache, const TrimPolicy& policy) {
  Directory* const directory = readable(cache);
  if (directory == nullptr) return {};
  Failures failures;
  Removed removed = remove_entries(cache, *directory, policy, failures);
  if (!policy.dry_run) sweep(*directory, failures);
  failures.check("trim", *directory);
  return removed;
}

Removed clear(Cache& cache) {
  Directory* const directory = readable(cache);
  if (directory == nullptr) return {};
  Failures failures;
  Removed removed = remove_entries(cache, *directory, {}, failures);
  sweep(*directory, failures);
  const auto closed =
      directory->scan_quarantine([&](const base::UniqueFd& quarantine, const Item& item) {
        if (!directory->remove(quarantine, item.name) && errno != ENOENT) {
          failures.add(fmt::format("{}/quarantine/{}", directory->path(), item.name), errno);
        }
      });
  if (closed) failures.closed.push_back(*closed);
  failures.check("clear", *directory);
  return removed;
}

}  // namespace kiln::cache
