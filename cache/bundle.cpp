#include "cache/bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cache/bytes.hpp"
#include "cache/directory.hpp"
#include "cache/trust.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kMagic = "\x89KPKG\r\n\x1a";
constexpr std::uint64_t kFixed = 24;
constexpr std::uint64_t kItem = 32;
constexpr std::uint64_t kDigest = 8;
constexpr std::uint64_t kChecksum = 16;
constexpr std::uint64_t kMaxItems = 1 << 24;

class Bundle final : public Layer {
 public:
  Bundle(Io& io, std::string path) : io_(io), path_(std::move(path)) {
    if (std::string reason = open(); !reason.empty()) {
      fd_.reset();
      index_.items.clear();
      log_once(LogLevel::warning, fmt::format("bundle:{}", path_),
               fmt::format("cache bundle {}: {}; not used", path_, reason));
    }
  }

  const std::string& path() const override { return path_; }

  std::optional<Loaded> load(const Key& key, Parts parts) override {
    const auto item = std::lower_bound(
        index_.items.begin(), index_.items.end(), key,
        [](const BundleItem& item, const Key& wanted) { return item.key < wanted; });
    if (item == index_.items.end() || item->key != key) return std::nullopt;
    std::string bytes;
    std::string reason;
    if (!read_bytes(io_, fd_.get(), item->offset, item->size, bytes)) {
      reason = describe_errno(errno);
    } else {
      Decoded decoded = decode(key, bytes, parts);
      if (decoded.entry) return Loaded{*std::move(decoded.entry), std::move(bytes)};
      reason = decoded.reason;
    }
    log_once(LogLevel::warning, fmt::format("bundle:{}:{}", path_, key.hex()),
             fmt::format("cache bundle {}: entry {} {}; not used", path_, key.hex(), reason));
    return std::nullopt;
  }

 private:
  std::string open() {
    std::error_code error;
    // A path that the user wrote may go through symlinks; what it ends at is opened without.
    const std::string resolved = std::filesystem::weakly_canonical(path_, error).string();
    fd_ = open_at(io_, AT_FDCWD, resolved.c_str(), O_RDONLY | O_NONBLOCK);
    struct stat status = {};
    if (!fd_ || io_.stat(fd_.get(), status) != 0) return describe_errno(errno);
    if (!S_ISREG(status.st_mode)) return "is not a regular file";
    if (std::string reason = distrust(status); !reason.empty()) return reason;
    std::string head;
    if (!read_bytes(io_, fd_.get(), 0, kFixed, head)) return describe_errno(errno);
    const std::uint64_t size = bundle_index_size(head);
    const auto total = static_cast<std::uint64_t>(status.st_size);
    if (size > total) return "is truncated";
    if (size != 0 && !read_bytes(io_, fd_.get(), 0, size, head)) return describe_errno(errno);
    index_ = decode_bundle_index(head, total);
    return index_.reason;
  }

  Io& io_;
  const std::string path_;
  Fd fd_;
  BundleIndex index_;
};

}  // namespace

std::string encode_bundle(const std::map<Key, std::string>& files) {
  std::uint64_t offset = kFixed + files.size() * kItem + kDigest;
  std::uint64_t total = offset + kChecksum;
  for (const auto& [key, file] : files) total += file.size();
  std::string bytes;
  bytes.reserve(total);
  ByteWriter writer(bytes);
  writer.raw(kMagic);
  writer.u32(kBundleVersion);
  writer.u32(0);
  writer.u64(files.size());
  for (const auto& [key, file] : files) {
    writer.u64(key.high);
    writer.u64(key.low);
    writer.u64(offset);
    writer.u64(file.size());
    offset += file.size();
  }
  writer.u64(XXH3_64bits(bytes.data(), bytes.size()));
  for (const auto& [key, file] : files) writer.raw(file);
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), bytes.size());
  writer.u64(checksum.high64);
  writer.u64(checksum.low64);
  return bytes;
}

std::uint64_t bundle_index_size(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.raw(kMagic.size()) != kMagic) return 0;
  if (reader.u32() != kBundleVersion || reader.u32() != 0) return 0;
  const std::uint64_t count = reader.u64();
  if (!reader.ok() || count > kMaxItems) return 0;
  return kFixed + count * kItem + kDigest;
}

BundleIndex decode_bundle_index(std::string_view bytes, std::uint64_t total) {
  BundleIndex index;
  const auto refuse = [](std::string reason) { return BundleIndex{{}, std::move(reason)}; };
  const std::uint64_t size = bundle_index_size(bytes);
  if (size == 0) return refuse("is not a kiln bundle of a version this kiln reads");
  if (bytes.size() < size || total < size + kChecksum) return refuse("is truncated");
  ByteReader digest(bytes.substr(size - kDigest));
  if (digest.u64() != XXH3_64bits(bytes.data(), size - kDigest)) {
    return refuse("has an index that does not match its digest");
  }
  ByteReader reader(bytes.substr(kFixed, size - kFixed - kDigest));
  std::uint64_t next = size;
  while (!reader.at_end()) {
    BundleItem item;
    item.key.high = reader.u64();
    item.key.low = reader.u64();
    item.offset = reader.u64();
    item.size = reader.u64();
    const bool ascending = index.items.empty() || index.items.back().key < item.key;
    if (!ascending || item.offset != next || item.size > kMaxEntryBytes ||
        item.size > total - kChecksum - next) {
      return refuse("has an index that is not in order");
    }
    next += item.size;
    index.items.push_back(item);
  }
  if (next != total - kChecksum) return refuse("is longer than its index says");
  return index;
}

std::string check_bundle(std::string_view bytes) {
  if (std::string reason = decode_bundle_index(bytes, bytes.size()).reason; !reason.empty()) {
    return reason;
  }
  const std::size_t body = bytes.size() - kChecksum;
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), body);
  ByteReader tail(bytes.substr(body));
  const std::uint64_t high = tail.u64();
  if (checksum.high64 != high || checksum.low64 != tail.u64()) {
    return "does not match its checksum";
  }
  return {};
}

std::unique_ptr<Layer> open_readonly_layer(Io& io, const std::string& path, Counters& counters) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return std::make_unique<Directory>(io, DirectoryOptions{path, false, 0, 0}, counters);
  }
  return std::make_unique<Bundle>(io, path);
}

}  // namespace kiln::cache
