#include "cache/directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/atomic_file.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kEntrySuffix = ".kiln";
constexpr std::string_view kLockSuffix = ".lock";
constexpr const char* kQuarantine = "quarantine";
constexpr std::size_t kMaxQuarantined = 64;

// What a thread reads code into: pages that are new to a process take several times as long as what
// is read into them.
constexpr std::size_t kMostKept = 1 << 20;
thread_local std::string kept_code;

Item classify(std::string name) {
  Item item;
  const auto key_before = [&](std::string_view suffix) {
    return name.ends_with(suffix)
               ? Key::parse(std::string_view(name).substr(0, name.size() - suffix.size()))
               : std::nullopt;
  };
  if (const auto key = key_before(kEntrySuffix)) {
    item.kind = Item::Kind::entry;
    item.key = *key;
  } else if (const auto key = key_before(kLockSuffix)) {
    item.kind = Item::Kind::lock;
    item.key = *key;
  } else if (name.starts_with(base::kTemporaryPrefix)) {
    item.kind = Item::Kind::temporary;
  }
  item.name = std::move(name);
  return item;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

std::uint64_t size_of(const Directory::File& file) {
  return static_cast<std::uint64_t>(file.status.st_size);
}

}  // namespace

unsigned shard_of(const Key& key) { return static_cast<unsigned>(key.high >> 56); }
std::string entry_name(const Key& key) { return key.hex() + std::string(kEntrySuffix); }
std::string lock_name(const Key& key) { return key.hex() + std::string(kLockSuffix); }

Directory::Directory(base::Io& io, DirectoryOptions options, Counters& counters)
    : io_(io), options_(std::move(options)), counters_(counters) {}

void Directory::report(std::string_view what, std::string_view reason) {
  // One line per directory and reason, not per entry.
  log_once(LogLevel::warning, fmt::format("cache:{}:{}:{}", options_.path, what, reason),
           fmt::format("cache {}: {}: {}; continuing without", options_.path, what, reason));
}

Opened Directory::open_root(bool create) { return open_trusted(io_, options_.path, create); }

std::shared_ptr<const base::UniqueFd> Directory::root(bool create) {
  Opened opened;
  {
    const std::lock_guard lock(mutex_);
    if (!untrusted_.empty()) return nullptr;
    struct stat status = {};
    // A program may outlive its cache directory: one that was deleted has no links left.
    const bool deleted =
        create && root_ && io_.stat(root_->get(), status) == 0 && status.st_nlink == 0;
    if (root_ && !deleted) return root_;
    opened = open_root(create);
    if (opened.state == Opened::State::open) {
      root_ = std::make_shared<const base::UniqueFd>(std::move(opened.directory));
      return root_;
    }
    if (opened.state == Opened::State::untrusted) untrusted_ = opened.reason;
  }
  if (opened.state != Opened::State::missing) report("not used", opened.reason);
  return nullptr;
}

std::string Directory::unreadable() {
  const Opened opened = open_root(false);
  return opened.state == Opened::State::missing ? std::string() : opened.reason;
}

std::string Directory::health_error() {
  const Opened opened = open_root(false);
  if (opened.state == Opened::State::missing) return {};
  if (opened.state != Opened::State::open) return opened.reason;
  if (!options_.writable) return {};
  const std::string probe = base::temporary_name(io_);
  const base::UniqueFd fd =
      base::open_at(io_, opened.directory.get(), probe.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!fd)
    return fmt::format("{}: cannot be written: {}", options_.path, base::describe_errno(errno));
  io_.unlink_at(opened.directory.get(), probe.c_str(), 0);
  return {};
}

base::UniqueFd Directory::shard(const base::UniqueFd& root, unsigned number, bool create,
                                bool to_name_files) {
  Opened opened = open_shard(root, number, create, to_name_files);
  if (opened.state != Opened::State::open && opened.state != Opened::State::missing) {
    // A system call that fails in one mostly fails in all.
    report("sub-directory not used", opened.state == Opened::State::untrusted
                                         ? fmt::format("{:02x} {}", number, opened.reason)
                                         : opened.reason);
  }
  return std::move(opened.directory);
}

Opened Directory::open_shard(const base::UniqueFd& root, unsigned number, bool create,
                             bool to_name_files) {
  const std::string name = fmt::format("{:02x}", number);
  // A path alone is enough to name what is in it, and is had without asking the file system to open
  // the directory, which stacked ones take their time for.
  const int flags = (to_name_files ? O_PATH : O_RDONLY) | O_DIRECTORY;
  base::UniqueFd fd = base::open_at(io_, root.get(), name.c_str(), flags);
  if (!fd && errno == ENOENT && create) {
    if (io_.make_directory_at(root.get(), name.c_str(), 0700) == 0 || errno == EEXIST) {
      fd = base::open_at(io_, root.get(), name.c_str(), flags);
    }
  }
  if (!fd) {
    if (errno == ESTALE) {  // the server has another directory of that path by now
      const std::lock_guard lock(mutex_);
      root_.reset();
      errno = ESTALE;
    }
    const auto state = errno == ENOENT && !create ? Opened::State::missing : Opened::State::failed;
    return {state, {}, base::describe_errno(errno)};
  }
  struct stat status = {};
  if (io_.stat(fd.get(), status) != 0) {
    return {Opened::State::failed, {}, base::describe_errno(errno)};
  }
  if (const std::string reason = distrust(status); !reason.empty()) {
    return {Opened::State::untrusted, {}, reason};
  }
  return {Opened::State::open, std::move(fd), {}};
}

// The file's bytes are not read yet.
Directory::File Directory::open_file(const base::UniqueFd& shard, const std::string& name,
                                     base::UniqueFd& fd) {
  File file;
  const auto refuse = [&](File::State state, std::string reason) {
    file.state = state;
    file.reason = std::move(reason);
    return std::move(file);
  };
  // O_NONBLOCK: a FIFO must not hold us up before we have seen that it is one.
  fd = base::open_at(io_, shard.get(), name.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) {
    switch (errno) {
      case ENOENT: return file;
      case ELOOP: return refuse(File::State::bad, "is a symbolic link");
      case ENXIO: return refuse(File::State::bad, "is not a regular file");
      default: return refuse(File::State::unavailable, base::describe_errno(errno));
    }
  }
  if (io_.stat(fd.get(), file.status) != 0) {
    return refuse(File::State::unavailable, base::describe_errno(errno));
  }
  if (!S_ISREG(file.status.st_mode)) return refuse(File::State::bad, "is not a regular file");
  if (std::string reason = distrust(file.status); !reason.empty()) {
    return refuse(File::State::bad, std::move(reason));
  }
  if (size_of(file) > kMaxEntryBytes) {
    return refuse(File::State::bad, fmt::format("is {} bytes", size_of(file)));
  }
  file.state = File::State::read;
  return file;
}

void Directory::read_bytes_of(File& file, const base::UniqueFd& fd, std::uint64_t limit) {
  if (base::read_bytes(io_, fd.get(), 0, std::min(size_of(file), limit), file.bytes)) return;
  file.state = File::State::unavailable;
  file.reason = base::describe_errno(errno);
}

// Where that is not allowed, recency stays as it is.
void Directory::touch(const File& file, const base::UniqueFd& fd) {
  if (!options_.writable) return;
  if (should_touch(base::modification_time(file.status), io_.now(), options_.touch_interval)) {
    io_.set_time(fd.get(), io_.now());
  }
}

Directory::File Directory::read_file(const base::UniqueFd& shard, const std::string& name,
                                     std::uint64_t limit) {
  base::UniqueFd fd;
  File file = open_file(shard, name, fd);
  if (file.state == File::State::read) read_bytes_of(file, fd, limit);
  return file;
}

Directory::File Directory::read_head(const base::UniqueFd& shard, const std::string& name) {
  File file = read_file(shard, name, kLikelyHead);
  if (file.state != File::State::read || head_size(file.bytes) <= file.bytes.size()) return file;
  return read_file(shard, name, head_size(file.bytes));
}

void Directory::heads(const std::function<void(const Head&)>& visit) {
  const auto visit_shard = [&](unsigned, const base::UniqueFd& shard, std::vector<Item>& items) {
    for (const Item& item : items) {
      if (item.kind != Item::Kind::entry) continue;
      const Head head = decode_head(read_head(shard, item.name).bytes);
      if (head.reason.empty() && head.key == item.key) visit(head);
    }
    return true;
  };
  const std::vector<Problem> closed = for_each_shard(all_shards(), visit_shard);
  if (!closed.empty()) {
    const std::string more =
        closed.size() > 1 ? fmt::format(" and {} more", closed.size() - 1) : std::string();
    report("not listed", fmt::format("{}{}: {}", closed[0].path, more, closed[0].reason));
  }
}

// What a launch needs of an entry whose head fits kLikelyHead and says what the code must be: the
// source, which is most of the file, is left where it is. Nothing where that is not so, or
// something is wrong, which is for the whole file to tell.
std::optional<Entry> Directory::read_code(const Key& key, const File& file,
                                          const base::UniqueFd& fd) {
  std::string bytes;
  if (!base::read_bytes(io_, fd.get(), 0, std::min(size_of(file), kLikelyHead), bytes)) return {};
  const std::uint64_t size = head_size(bytes);
  if (size == 0 || size > bytes.size()) return {};
  Head head = decode_head(bytes, Parts::code);
  if (!head.reason.empty() || head.key != key || head.file_bytes != size_of(file)) return {};
  Entry entry;
  entry.code = std::exchange(kept_code, {});
  if (!base::read_bytes(io_, fd.get(), head.code_offset, head.code_bytes, entry.code)) return {};
  if (!is_code_of(head, entry.code)) return {};
  entry.metadata = std::move(head.metadata);
  return entry;
}

std::optional<Loaded> Directory::load(const Key& key, Parts parts) {
  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return std::nullopt;
  const base::UniqueFd shard = this->shard(*root, shard_of(key), false, true);
  if (!shard) return std::nullopt;
  const std::string name = entry_name(key);
  base::UniqueFd fd;
  File file = open_file(shard, name, fd);
  if (file.state == File::State::read) {
    touch(file, fd);
    if (parts == Parts::code && options_.writable) {
      if (auto entry = read_code(key, file, fd)) return Loaded{*std::move(entry), {}};
    }
    read_bytes_of(file, fd, kMaxEntryBytes);
  }
  const bool opened = file.status.st_ino != 0;
  if (file.state == File::State::unavailable) report("entry not read", file.reason);
  if (file.state == File::State::bad) {
    quarantine(shard, name, opened ? &file.status : nullptr, file.reason);
  }
  if (file.state != File::State::read) return std::nullopt;

  Decoded decoded = decode(key, file.bytes, parts);
  if (!decoded.entry) {
    if (!decoded.other_version) quarantine(shard, name, &file.status, decoded.reason);
    return std::nullopt;
  }
  return Loaded{*std::move(decoded.entry), std::move(file.bytes)};
}

void Directory::reuse(std::string code) {
  if (code.capacity() <= kMostKept) kept_code = std::move(code);
}

bool Directory::exists(const Key& key) {
  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return false;
  const base::UniqueFd shard = this->shard(*root, shard_of(key), false);
  struct stat status = {};
  return shard && io_.stat_at(shard.get(), entry_name(key).c_str(), status) == 0;
}

void Directory::quarantine(const Key& key, std::string_view reason) {
  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return;
  const base::UniqueFd shard = this->shard(*root, shard_of(key), false);
  if (shard) quarantine(shard, entry_name(key), nullptr, reason);
}

bool Directory::quarantine(const base::UniqueFd& shard, const std::string& name,
                           const struct stat* seen, std::string_view reason) {
  if (!options_.writable) {
    report("read-only entry not used", fmt::format("{} {}", name, reason));
    return false;
  }
  struct stat status = {};
  if (io_.stat_at(shard.get(), name.c_str(), status) != 0) {
    if (errno == ENOENT) return true;
    report("entry not moved", base::describe_errno(errno));
    return false;
  }
  if (seen != nullptr && !same_file(*seen, status)) return true;  // another process has healed it

  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return false;
  io_.make_directory_at(root->get(), kQuarantine, 0700);
  const base::UniqueFd target =
      base::open_at(io_, root->get(), kQuarantine, O_RDONLY | O_DIRECTORY);
  const std::string moved =
      fmt::format("{}-{:x}{}", name.substr(0, name.find('.')), io_.now(), kEntrySuffix);
  std::string what = fmt::format("moved to {}/{}", kQuarantine, moved);
  bool gone = true;
  if (!target || io_.rename_at(shard.get(), name.c_str(), target.get(), moved.c_str()) != 0) {
    // Where it cannot be moved it is deleted. What cannot be deleted either stays, and is refused
    // again the next time.
    gone = remove(shard, name) || errno == ENOENT;
    what = gone ? "deleted" : fmt::format("cannot be moved ({})", base::describe_errno(errno));
  }
  counters_.add(Count::quarantined);
  log_once(LogLevel::warning, fmt::format("cache:{}:{}", options_.path, name),
           fmt::format("cache {}: entry {} {}: {}", options_.path, name, reason, what));

  std::vector<std::pair<std::int64_t, std::string>> kept;
  scan_quarantine([&](const base::UniqueFd&, const Item& item) {
    kept.emplace_back(item.status.st_ctim.tv_sec, item.name);
  });
  if (kept.size() <= kMaxQuarantined) return gone;
  std::sort(kept.begin(), kept.end());
  for (std::size_t i = 0; i + kMaxQuarantined < kept.size(); ++i) remove(target, kept[i].second);
  return gone;
}

bool Directory::remove(const base::UniqueFd& shard, const std::string& name) {
  if (io_.unlink_at(shard.get(), name.c_str(), 0) == 0) return true;
  const int error = errno;
  if ((error == EISDIR || error == EPERM) &&
      io_.unlink_at(shard.get(), name.c_str(), AT_REMOVEDIR) == 0) {
    return true;
  }
  errno = error;
  return false;
}

// False, errno: it could not be listed.
bool Directory::scan(const base::UniqueFd& directory, std::vector<Item>& items) {
  std::vector<std::string> names;
  if (io_.names(directory.get(), names) != 0) return false;
  for (std::string& name : names) {
    Item item = classify(std::move(name));
    if (io_.stat_at(directory.get(), item.name.c_str(), item.status) == 0) {
      items.push_back(std::move(item));
    }
  }
  return true;
}

std::vector<Problem> Directory::for_each_shard(
    const Shards& shards, const std::function<bool(unsigned number, const base::UniqueFd& shard,
                                                   std::vector<Item>& items)>& visit) {
  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return {};
  std::vector<std::string> names;
  if (io_.names(root->get(), names) != 0) {
    return {{options_.path, base::describe_errno(errno), false}};
  }
  std::sort(names.begin(), names.end());
  std::vector<Problem> problems;
  for (const std::string& name : names) {
    const bool hex = name.size() == 2 && name.find_first_not_of("0123456789abcdef") == name.npos;
    if (!hex) continue;
    const auto number = static_cast<unsigned>(std::stoul(name, nullptr, 16));
    if (!shards[number]) continue;
    const Opened shard = open_shard(*root, number, false);
    if (shard.state == Opened::State::missing) continue;
    const std::string path = fmt::format("{}/{}", options_.path, name);
    std::vector<Item> items;
    if (shard.state != Opened::State::open) {
      problems.push_back({path, shard.reason, false});
    } else if (!scan(shard.directory, items)) {
      problems.push_back({path, base::describe_errno(errno), false});
    } else if (!visit(number, shard.directory, items)) {
      break;
    }
  }
  return problems;
}

std::optional<Problem> Directory::scan_quarantine(
    const std::function<void(const base::UniqueFd&, const Item&)>& visit) {
  const std::shared_ptr<const base::UniqueFd> root = this->root(false);
  if (!root) return std::nullopt;
  const base::UniqueFd directory =
      base::open_at(io_, root->get(), kQuarantine, O_RDONLY | O_DIRECTORY);
  std::vector<Item> items;
  if (!directory && errno == ENOENT) return std::nullopt;
  if (!directory || !scan(directory, items)) {
    return Problem{fmt::format("{}/{}", options_.path, kQuarantine), base::describe_errno(errno),
                   false};
  }
  for (const Item& item : items) visit(directory, item);
  return std::nullopt;
}

}  // namespace kiln::cache
