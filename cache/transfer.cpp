// Moving entries between caches: export to a bundle and import from one (kiln/cache.hpp).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>

#include "cache/bundle.hpp"
#include "cache/cache.hpp"
#include "kiln/cache.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw Error(Code::io, fmt::format("cache {}: {}: {}", what, path, describe_errno(error)));
}

/// Reads all of a file that the user named.
std::string read_named(Io& io, const std::string& path) {
  const int raw = io.open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  const Fd fd(io, raw);
  struct stat status = {};
  if (!fd || io.stat(fd.get(), status) != 0) fail("import", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(Code::invalid_argument,
                fmt::format("cache import: {}: expected a regular file", path));
  }
  std::string bytes;
  if (!read_bytes(io, fd.get(), 0, static_cast<std::uint64_t>(status.st_size), bytes)) {
    fail("import", path, errno);
  }
  return bytes;
}

/// Writes beside `path` and renames, so that the file is whole or not there.
void write_named(Io& io, std::int64_t now, const std::string& path, std::string_view bytes) {
  const std::filesystem::path target(path);
  const std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
  const std::string temporary = parent + "/" + temporary_name(now);
  const Fd fd = open_at(io, AT_FDCWD, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (!fd) fail("export", path, errno);
  if (!write_bytes(io, fd.get(), bytes) || !sync_file(io, fd.get()) ||
      io.rename_at(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str()) != 0) {
    const int error = errno;
    io.unlink_at(AT_FDCWD, temporary.c_str(), 0);
    fail("export", path, error);
  }
}

Directory& directory_of(Cache& cache, std::string_view what) {
  if (Directory* const directory = cache.directory()) return *directory;
  throw Error(Code::io, fmt::format("cache {}: there is no cache directory: {}", what,
                                    cache.config().why_uncached));
}

/// Says whether there are none or none could be read.
[[noreturn]] void fail_without_entries(Directory& directory, const std::vector<Problem>& problems) {
  const std::string reason = problems.empty() ? directory.unreadable() : problems[0].reason;
  if (reason.empty()) {
    throw Error(Code::not_found,
                fmt::format("cache export: no entry of {} matches", directory.path()));
  }
  throw Error(Code::io, fmt::format("cache export: no entry of {} can be read: {}",
                                    directory.path(), reason));
}

}  // namespace

Transfer export_bundle(Cache& cache, const std::string& path, const Filter& filter) {
  Directory& directory = directory_of(cache, "export");
  Transfer transfer;
  std::map<Key, std::string> files;
  for (const Listing& listing : list(cache, filter)) {
    auto loaded = directory.load(listing.key, Parts::all);
    if (loaded) {
      transfer.bytes += loaded->bytes.size();
      files.emplace(listing.key, std::move(loaded->bytes));
    } else {
      const bool known = !listing.problem.empty();
      transfer.problems.push_back({listing.path, known ? listing.problem : "is not usable", false});
    }
  }
  if (files.empty()) fail_without_entries(directory, transfer.problems);
  const Secret& secret = cache.config().secret;
  transfer.entries = files.size();
  transfer.signature = secret ? Signature::good : Signature::none;
  write_named(directory.io(), directory.now(), path, encode_bundle(files, secret));
  return transfer;
}

Transfer import_bundle(Cache& cache, const std::string& path) {
  Directory& directory = directory_of(cache, "import");
  const std::string bytes = read_named(directory.io(), path);
  const Secret& secret = cache.config().secret;
  const BundleIndex index = check_bundle(bytes, secret);
  if (!index.reason.empty()) {
    throw Error(Code::invalid_argument, fmt::format("cache import: {}: {}", path, index.reason));
  }
  Transfer transfer;
  transfer.signature = index.signature;
  for (const BundleItem& item : index.items) {
    const std::string_view file = std::string_view(bytes).substr(item.offset, item.size);
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
  }
  if (transfer.entries + transfer.present == 0) {
    const std::string trouble = directory.trouble();
    throw Error(Code::io, fmt::format("cache import: {}: nothing could be kept in {}{}", path,
                                      directory.path(), trouble.empty() ? "" : ": " + trouble));
  }
  return transfer;
}

}  // namespace kiln::cache
