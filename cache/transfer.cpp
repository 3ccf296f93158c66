// Moving entries between caches: export to a bundle and import from one (kiln/cache.hpp).
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
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

/// An entry's file as an export wants it.
struct Checked {
  enum class State : std::uint8_t { good, other, vanished, bad };
  State state = State::other;  ///< other: the filter does not match
  std::string bytes;
  std::string reason;
};

/// Reads the head alone where the filter needs no more.
Checked read_checked(Directory& directory, const base::UniqueFd& shard, const Item& item,
                     const Filter& filter) {
  using State = Checked::State;
  const std::optional<Listing> listing = read_listing(directory, shard, item);
  if (!listing) return {State::vanished, {}, {}};
  if (!filter.matches(*listing)) return {};
  Directory::File file = directory.read_file(shard, item.name, kMaxEntryBytes);
  if (file.state == Directory::File::State::absent) return {State::vanished, {}, {}};
  if (file.state == Directory::File::State::unavailable) return {State::bad, {}, file.reason};
  if (file.state == Directory::File::State::read) {
    const Decoded decoded = decode(item.key, file.bytes, Parts::all);
    if (decoded.entry) return {State::good, std::move(file.bytes), {}};
    file.reason = decoded.reason;
    if (decoded.other_version) return {State::bad, {}, file.reason};
  }
  const bool opened = file.status.st_ino != 0;
  directory.quarantine(shard, item.name, opened ? &file.status : nullptr, file.reason);
  return {State::bad, {}, file.reason};
}

/// Says whether there are none or none could be read.
[[noreturn]] void fail_without_entries(Directory& directory, const std::vector<Problem>& problems) {
  const std::string reason = problems.empty()
                                 ? directory.unreadable()
                                 : fmt::format("{}: {}", problems[0].path, problems[0].reason);
  if (reason.empty()) {
    throw Error(Code::not_found,
                fmt::format("cache export: no entry of {} matches", directory.path()));
  }
  throw Error(Code::io, fmt::format("cache export: no entry of {} can be read: {}",
                                    directory.path(), reason));
}

}  // namespace

Transfer export_bundle(Cache& cache, const std::string& path, const Filter& filter,
                       const TransferProgress& progress) {
  Directory& directory = directory_of(cache, "export");
  if (const std::string reason = directory.unreadable(); !reason.empty()) {
    throw Error(Code::io, fmt::format("cache export: {}", reason));
  }
  base::Io& io = directory.io();
  const std::uint64_t total = progress ? usage(cache).entries : 0;
  base::AtomicFile file(io, AT_FDCWD, path, {.mode = 0644, .sync = true, .unnamed = true});
  if (file.error() != 0) fail("export", path, file.error());
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  base::UniqueFd scratch = base::open_scratch(io, parent.empty() ? "." : parent.string());
  if (!scratch) fail("export", path, errno);
  const Secret& secret = cache.config().secret;
  BundleWriter bundle(io, std::move(scratch), secret);
  Transfer transfer;
  std::uint64_t done = 0;
  const auto add = [&](const base::UniqueFd& shard, const Item& item) {
    const Checked checked = read_checked(directory, shard, item, filter);
    if (checked.state == Checked::State::vanished) ++transfer.vanished;
    if (checked.state == Checked::State::bad) {
      transfer.problems.push_back({path_of(cache, item.key), checked.reason, false});
    }
    if (checked.state == Checked::State::good) {
      if (!bundle.add(item.key, checked.bytes)) fail("export", path, errno);
      transfer.bytes += checked.bytes.size();
    }
    if (progress) progress(++done, std::max(done, total));
    return true;
  };
  for (Problem& closed : for_each_item(directory, add)) {
    transfer.problems.push_back(std::move(closed));
  }
  if (bundle.entries() == 0) fail_without_entries(directory, transfer.problems);
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

}  // namespace kiln::cache
