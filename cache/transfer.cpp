// Moving entries between caches: export to a bundle and import from one, push to the remote tier
// and pull from it (kiln/cache.hpp).
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

#include "base/atomic_file.hpp"
#include "cache/bundle.hpp"
#include "cache/cache.hpp"
#include "cache/listing.hpp"
#include "kiln/cache.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw Error(Code::io, fmt::format("cache {}: {}: {}", what, path, base::describe_errno(error)));
}

/// A file that the user named, to be read.
struct Named {
  base::UniqueFd fd;
  std::uint64_t size = 0;
};

Named open_named(base::Io& io, const std::string& path) {
  Named file{base::open_file(io, path, O_RDONLY | O_NONBLOCK), 0};
  struct stat status = {};
  if (!file.fd || io.stat(file.fd.get(), status) != 0) fail("import", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(Code::invalid_argument,
                fmt::format("cache import: {}: expected a regular file", path));
  }
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

Directory& directory_of(Cache& cache, std::string_view what) {
  if (Directory* const directory = cache.directory()) return *directory;
  throw Error(Code::io, fmt::format("cache {}: there is no cache directory: {}", what,
                                    cache.config().why_uncached));
}

Directory& readable_directory_of(Cache& cache, std::string_view what) {
  Directory& directory = directory_of(cache, what);
  const std::string reason = directory.unreadable();
  if (reason.empty()) return directory;
  throw Error(Code::io, fmt::format("cache {}: {}", what, reason));
}

/// An entry's file as an export wants it.
struct Checked {
  enum class State : std::uint8_t { good, other, vanished, bad };
  State state = State::other;  ///< other: the filter does not match
  std::string bytes;
  std::string reason;
  Key source;  ///< key_without_toolchain()
};

/// Reads the head alone where the filter needs no more.
Checked read_checked(Directory& directory, const base::UniqueFd& shard, const Item& item,
                     const Filter& filter) {
  using State = Checked::State;
  const std::optional<Listing> listing = read_listing(directory, shard, item);
  if (!listing) return {State::vanished, {}, {}, {}};
  if (!filter.matches(*listing)) return {};
  Directory::File file = directory.read_file(shard, item.name, kMaxEntryBytes);
  if (file.state == Directory::File::State::absent) return {State::vanished, {}, {}, {}};
  if (file.state == Directory::File::State::unavailable) return {State::bad, {}, file.reason, {}};
  if (file.state == Directory::File::State::read) {
    const Decoded decoded = decode(item.key, file.bytes, Parts::all);
    if (decoded.entry) {
      return {State::good,
              std::move(file.bytes),
              {},
              key_without_toolchain(decoded.entry->metadata.ingredients)};
    }
    file.reason = decoded.reason;
    if (decoded.other_version) return {State::bad, {}, file.reason, {}};
  }
  const bool opened = file.status.st_ino != 0;
  directory.quarantine(shard, item.name, opened ? &file.status : nullptr, file.reason);
  return {State::bad, {}, file.reason, {}};
}

/// Says whether there are none or none could be read.
[[noreturn]] void fail_without_entries(std::string_view what, Directory& directory,
                                       const std::vector<Problem>& problems) {
  const std::string reason = problems.empty()
                                 ? directory.unreadable()
                                 : fmt::format("{}: {}", problems[0].path, problems[0].reason);
  if (reason.empty()) {
    throw Error(Code::not_found,
                fmt::format("cache {}: no entry of {} matches", what, directory.path()));
  }
  throw Error(Code::io, fmt::format("cache {}: no entry of {} can be read: {}", what,
                                    directory.path(), reason));
}

/// Calls `send` for each matching entry that is good, and puts the others into `transfer`. Throws
/// if there is none.
void send_entries(Cache& cache, std::string_view what, const Filter& filter,
                  const TransferProgress& progress, Transfer& transfer,
                  const std::function<void(const Key&, const Checked&)>& send) {
  Directory& directory = directory_of(cache, what);
  const Shards shards = shards_of(filter);
  std::uint64_t total = 0;
  const auto count = [&](const base::UniqueFd&, const Item&) { return ++total != 0; };
  if (progress) for_each_item(directory, shards, count);
  std::uint64_t done = 0;
  bool any = false;
  const auto visit = [&](const base::UniqueFd& shard, const Item& item) {
    const Checked checked = read_checked(directory, shard, item, filter);
    if (checked.state == Checked::State::vanished) ++transfer.vanished;
    if (checked.state == Checked::State::bad) {
      transfer.problems.push_back({path_of(cache, item.key), checked.reason, false});
    }
    if (checked.state == Checked::State::good) {
      any = true;
      send(item.key, checked);
    }
    if (progress) progress(++done, std::max(done, total));
    return true;
  };
  for (Problem& closed : for_each_item(directory, shards, visit)) {
    transfer.problems.push_back(std::move(closed));
  }
  if (!any) fail_without_entries(what, directory, transfer.problems);
}

std::shared_ptr<Remote> remote_of(Cache& cache, std::string_view what) {
  if (auto remote = cache.remote()) return remote;
  throw Error(Code::not_found,
              fmt::format("cache {}: there is no remote cache: set KILN_REMOTE_CACHE and "
                          "KILN_CACHE_SECRET",
                          what));
}

/// Throws if the server has failed meanwhile.
void check_answer(Remote& remote, std::string_view what) {
  const std::string problem = remote.health().problem;
  if (problem.empty()) return;
  throw Error(Code::io, fmt::format("cache {}: {}: the server {}", what,
                                    remote.settings().display(), problem));
}

/// Long enough for whatever a server does; the client has limits of its own.
TimePoint patient(const Remote& remote) {
  return std::chrono::steady_clock::now() + 2 * remote.settings().answer + std::chrono::seconds(1);
}

}  // namespace

Transfer export_bundle(Cache& cache, const std::string& path, const Filter& filter,
                       const TransferProgress& progress) {
  Directory& directory = readable_directory_of(cache, "export");
  base::Io& io = directory.io();
  base::AtomicFile file(io, AT_FDCWD, path, {.mode = 0644, .sync = true, .unnamed = true});
  if (file.error() != 0) fail("export", path, file.error());
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  base::UniqueFd scratch = base::open_scratch(io, parent.empty() ? "." : parent.string());
  if (!scratch) fail("export", path, errno);
  const Secret& secret = cache.config().secret;
  BundleWriter bundle(io, std::move(scratch), secret);
  Transfer transfer;
  send_entries(cache, "export", filter, progress, transfer,
               [&](const Key& key, const Checked& checked) {
                 if (!bundle.add(key, checked.bytes)) fail("export", path, errno);
                 transfer.bytes += checked.bytes.size();
               });
  if (!bundle.write(file.fd())) fail("export", path, errno);
  if (!file.commit()) fail("export", path, file.error());
  transfer.entries = bundle.entries();
  transfer.signature = secret ? Signature::good : Signature::none;
  return transfer;
}

Transfer import_bundle(Cache& cache, const std::string& path, const TransferProgress& progress) {
  Directory& directory = directory_of(cache, "import");
  const Named named = open_named(directory.io(), path);
  const auto read = [&](std::uint64_t offset, std::uint64_t size) {
    std::string bytes;
    if (!base::read_bytes(directory.io(), named.fd.get(), offset, size, bytes)) {
      fail("import", path, errno);
    }
    return bytes;
  };
  const Secret& secret = cache.config().secret;
  const BundleIndex index = check_bundle(named.size, read, secret);
  if (!index.reason.empty()) {
    throw Error(Code::invalid_argument, fmt::format("cache import: {}: {}", path, index.reason));
  }
  Transfer transfer;
  transfer.signature = index.signature;
  std::uint64_t done = 0;
  for (const BundleItem& item : index.items) {
    const std::string file = read(item.offset, item.size);
    const Decoded decoded = decode_bundle_entry(item, file, Parts::all, secret);
    if (!decoded.entry) {
      transfer.problems.push_back({item.key.hex(), decoded.reason, false});
    } else if (directory.load(item.key, Parts::code)) {
      ++transfer.present;
    } else if (directory.publish(item.key, file)) {
      ++transfer.entries;
      transfer.bytes += file.size();
    } else {
      transfer.problems.push_back({item.key.hex(), "was not kept", false});
    }
    if (progress) progress(++done, index.items.size());
  }
  if (transfer.entries + transfer.present == 0) {
    const std::string problem = directory.health_error();
    throw Error(Code::io, fmt::format("cache import: {}: nothing could be kept in {}{}", path,
                                      directory.path(), problem.empty() ? "" : ": " + problem));
  }
  return transfer;
}

Transfer push(Cache& cache, const Filter& filter, const TransferProgress& progress) {
  const std::shared_ptr<Remote> remote = remote_of(cache, "push");
  readable_directory_of(cache, "push");
  Transfer transfer;
  transfer.signature = Signature::good;
  const auto send = [&](const Key& key, const Checked& checked) {
    switch (remote->push(key, checked.source, checked.bytes, patient(*remote))) {
      case Remote::Pushed::sent:
        ++transfer.entries;
        transfer.bytes += checked.bytes.size();
        break;
      case Remote::Pushed::present: ++transfer.present; break;
      case Remote::Pushed::failed:
        check_answer(*remote, "push");
        transfer.problems.push_back({path_of(cache, key), "was not kept by the server", false});
    }
  };
  send_entries(cache, "push", filter, progress, transfer, send);
  return transfer;
}

Transfer pull(Cache& cache, const Filter& filter, const TransferProgress& progress) {
  constexpr std::size_t kAtOnce = 16;
  const std::shared_ptr<Remote> remote = remote_of(cache, "pull");
  Directory& directory = directory_of(cache, "pull");
  const auto keys = filter.keys.empty() ? remote->keys(patient(*remote)) : filter.keys;
  if (!keys) {
    check_answer(*remote, "pull");
    throw Error(Code::io, fmt::format("cache pull: {}: the server does not list its entries",
                                      remote->settings().display()));
  }
  Transfer transfer;
  transfer.signature = Signature::good;
  std::vector<Key> missing;
  for (const Key& key : *keys) {
    const std::optional<Listing> listing = find_listing(cache, key);
    if (!listing || !listing->problem.empty()) {
      missing.push_back(key);
    } else if (filter.matches(*listing)) {
      ++transfer.present;
    }
  }
  std::uint64_t done = keys->size() - missing.size();
  for (std::size_t at = 0; at < missing.size(); at += kAtOnce) {
    const std::span<const Key> part =
        std::span(missing).subspan(at, std::min(kAtOnce, missing.size() - at));
    const auto loaded = remote->fetch(part, patient(*remote));
    check_answer(*remote, "pull");
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (progress) progress(++done, keys->size());
      if (!loaded[i]) {
        transfer.problems.push_back({part[i].hex(), "is not on the server, or was refused", false});
        continue;
      }
      Listing listing;
      listing.key = part[i];
      listing.metadata = loaded[i]->entry.metadata;
      if (!filter.matches(listing)) continue;
      if (directory.publish(part[i], loaded[i]->bytes)) {
        ++transfer.entries;
        transfer.bytes += loaded[i]->bytes.size();
      } else {
        transfer.problems.push_back({part[i].hex(), "was not kept", false});
      }
    }
  }
  return transfer;
}

}  // namespace kiln::cache
