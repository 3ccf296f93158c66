#include "cache/bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <new>

#include "base/bytes.hpp"
#include "cache/directory.hpp"
#include "cache/trust.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kBundleMagic = "\x89KPKG\r\n\x1a";
constexpr std::uint64_t kHeadBytes = 24;
constexpr std::uint64_t kItem = 32;  // without the code of a signed bundle
constexpr std::uint32_t kSigned = 1;
constexpr std::string_view kPurpose = "bundle";
constexpr std::uint64_t kDigest = 8;
constexpr std::uint64_t kChecksum = 16;
constexpr std::uint64_t kMaxItems = 1 << 24;
constexpr std::uint64_t kPart = 1 << 20;  // read at once of a file of any size

std::string_view text_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

/// Zeros if there are too few bytes.
Mac mac_of(std::string_view bytes) {
  Mac mac{};
  if (bytes.size() == mac.size()) std::copy(bytes.begin(), bytes.end(), mac.begin());
  return mac;
}

/// XXH3-128 of bytes that come in parts.
class StreamedChecksum {
 public:
  StreamedChecksum() : state_(XXH3_createState(), XXH3_freeState) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(std::string_view bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  /// As a bundle ends with it.
  std::string bytes() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    std::string bytes;
    base::ByteWriter writer(bytes);
    writer.u64(hash.high64);
    writer.u64(hash.low64);
    return bytes;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

/// What is before the items.
struct BundleHead {
  bool is_signed = false;
  std::uint64_t count = 0;

  std::uint64_t item_bytes() const { return kItem + (is_signed ? kMacBytes : 0); }
  std::uint64_t index_bytes() const {
    return kHeadBytes + count * item_bytes() + (is_signed ? kMacBytes : 0) + kDigest;
  }
};

std::optional<BundleHead> decode_bundle_head(std::string_view bytes) {
  base::ByteReader reader(bytes);
  if (reader.raw(kBundleMagic.size()) != kBundleMagic || reader.u32() != kBundleVersion)
    return std::nullopt;
  const std::uint32_t flags = reader.u32();
  const BundleHead head{flags == kSigned, reader.u64()};
  if (!reader.ok() || flags > kSigned || head.count > kMaxItems) return std::nullopt;
  return head;
}

class Bundle final : public Layer {
 public:
  Bundle(base::Io& io, std::string path, const Secret& secret)
      : io_(io), path_(std::move(path)), secret_(secret) {
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
    if (!base::read_bytes(io_, fd_.get(), item->offset, item->size, bytes)) {
      reason = base::describe_errno(errno);
    } else {
      Decoded decoded = decode_bundle_entry(*item, bytes, parts, secret_);
      if (decoded.entry) return Loaded{*std::move(decoded.entry), std::move(bytes)};
      reason = decoded.reason;
    }
    log_once(LogLevel::warning, fmt::format("bundle:{}:{}", path_, key.hex()),
             fmt::format("cache bundle {}: entry {} {}; not used", path_, key.hex(), reason));
    return std::nullopt;
  }

  void heads(const std::function<void(const Head&)>& visit) override {
    std::string bytes;
    for (const BundleItem& item : index_.items) {
      const auto read = [&](std::uint64_t size) {
        return base::read_bytes(io_, fd_.get(), item.offset, std::min(size, item.size), bytes);
      };
      if (!read(kLikelyHead)) return;
      if (head_size(bytes) > bytes.size() && !read(head_size(bytes))) return;
      const Head head = decode_head(bytes);
      if (head.reason.empty() && head.key == item.key) visit(head);
    }
  }

 private:
  std::string open() {
    std::error_code error;
    // A path that the user wrote may go through symlinks; what it ends at is opened without.
    const std::string resolved = std::filesystem::weakly_canonical(path_, error).string();
    fd_ = base::open_at(io_, AT_FDCWD, resolved.c_str(), O_RDONLY | O_NONBLOCK);
    struct stat status = {};
    if (!fd_ || io_.stat(fd_.get(), status) != 0) return base::describe_errno(errno);
    if (!S_ISREG(status.st_mode)) return "is not a regular file";
    if (std::string reason = distrust(status); !reason.empty()) return reason;
    std::string head;
    if (!base::read_bytes(io_, fd_.get(), 0, kHeadBytes, head)) return base::describe_errno(errno);
    const std::uint64_t size = bundle_index_size(head);
    const auto total = static_cast<std::uint64_t>(status.st_size);
    if (size > total) return "is truncated";
    if (size != 0 && !base::read_bytes(io_, fd_.get(), 0, size, head))
      return base::describe_errno(errno);
    index_ = decode_bundle_index(head, total, secret_);
    return index_.reason;
  }

  base::Io& io_;
  const std::string path_;
  const Secret secret_;
  base::UniqueFd fd_;
  BundleIndex index_;
};

}  // namespace

BundleWriter::BundleWriter(base::Io& io, base::UniqueFd waiting, const Secret& secret)
    : io_(io), waiting_(std::move(waiting)), secret_(secret) {}

bool BundleWriter::add(const Key& key, std::string_view file) {
  if (!base::write_bytes(io_, waiting_.get(), file)) return false;
  BundleItem item{key, bytes_, file.size(), {}};
  if (secret_) item.mac = secret_.sign_entry(key, file);
  items_.push_back(item);
  bytes_ += file.size();
  return true;
}

std::string BundleWriter::index() const {
  const BundleHead head{static_cast<bool>(secret_), items_.size()};
  std::string bytes;
  bytes.reserve(head.index_bytes());
  base::ByteWriter writer(bytes);
  writer.raw(kBundleMagic);
  writer.u32(kBundleVersion);
  writer.u32(secret_ ? kSigned : 0);
  writer.u64(items_.size());
  for (const BundleItem& item : items_) {
    writer.u64(item.key.high);
    writer.u64(item.key.low);
    writer.u64(head.index_bytes() + item.offset);
    writer.u64(item.size);
    if (secret_) writer.raw(text_of(item.mac));
  }
  if (secret_) writer.raw(text_of(secret_.sign(kPurpose, bytes)));
  writer.u64(XXH3_64bits(bytes.data(), bytes.size()));
  return bytes;
}

bool BundleWriter::write(const base::UniqueFd& to) {
  StreamedChecksum checksum;
  const auto put = [&](std::string_view bytes) {
    checksum.add(bytes);
    return base::write_bytes(io_, to.get(), bytes);
  };
  if (!put(index())) return false;
  std::string part;
  for (std::uint64_t at = 0; at < bytes_; at += part.size()) {
    if (!base::read_bytes(io_, waiting_.get(), at, std::min(kPart, bytes_ - at), part))
      return false;
    errno = EIO;  // somebody has cut the file
    if (part.empty() || !put(part)) return false;
  }
  return base::write_bytes(io_, to.get(), checksum.bytes());
}

std::uint64_t bundle_index_size(std::string_view bytes) {
  const std::optional<BundleHead> head = decode_bundle_head(bytes);
  return head ? head->index_bytes() : 0;
}

BundleIndex decode_bundle_index(std::string_view bytes, std::uint64_t total, const Secret& secret) {
  const auto refuse = [](std::string reason) {
    BundleIndex none;
    none.reason = std::move(reason);
    return none;
  };
  const std::optional<BundleHead> head = decode_bundle_head(bytes);
  if (!head) return refuse("is not a kiln bundle of a version this kiln reads");
  const std::uint64_t size = head->index_bytes();
  if (bytes.size() < size || total < size + kChecksum) return refuse("is truncated");
  base::ByteReader digest(bytes.substr(size - kDigest));
  if (digest.u64() != XXH3_64bits(bytes.data(), size - kDigest)) {
    return refuse("has an index that does not match its digest");
  }
  BundleIndex index;
  base::ByteReader reader(bytes.substr(kHeadBytes, head->count * head->item_bytes()));
  std::uint64_t next = size;
  while (!reader.at_end()) {
    BundleItem item;
    item.key.high = reader.u64();
    item.key.low = reader.u64();
    item.offset = reader.u64();
    item.size = reader.u64();
    if (head->is_signed) item.mac = mac_of(reader.raw(kMacBytes));
    const bool ascending = index.items.empty() || index.items.back().key < item.key;
    if (!ascending || item.offset != next || item.size > kMaxEntryBytes ||
        item.size > total - kChecksum - next) {
      return refuse("has an index that is not in order");
    }
    next += item.size;
    index.items.push_back(item);
  }
  if (next != total - kChecksum) return refuse("is longer than its index says");
  if (head->is_signed) index.signature = secret ? Signature::good : Signature::unchecked;
  if (!secret) return index;
  if (!head->is_signed) return refuse("is not signed, and KILN_CACHE_SECRET is set");
  const std::uint64_t covered = size - kDigest - kMacBytes;
  if (!secret.accepts(mac_of(bytes.substr(covered, kMacBytes)), kPurpose,
                      bytes.substr(0, covered))) {
    return refuse("was not signed with this KILN_CACHE_SECRET");
  }
  return index;
}

BundleIndex check_bundle(std::uint64_t total, const ReadBundle& read, const Secret& secret) {
  const std::uint64_t size = bundle_index_size(read(0, kHeadBytes));
  BundleIndex index = decode_bundle_index(
      read(0, std::clamp(size, kHeadBytes, std::max(total, kHeadBytes))), total, secret);
  if (!index.reason.empty()) return index;
  const std::uint64_t body = total - kChecksum;
  StreamedChecksum checksum;
  std::string part;
  for (std::uint64_t at = 0; at < body; at += part.size()) {
    part = read(at, std::min(kPart, body - at));
    if (part.empty()) break;
    checksum.add(part);
  }
  if (read(body, kChecksum) != checksum.bytes()) {
    index = {};
    index.reason = "does not match its checksum";
  }
  return index;
}

BundleIndex check_bundle(std::string_view bytes, const Secret& secret) {
  const auto read = [&](std::uint64_t offset, std::uint64_t size) {
    return std::string(bytes.substr(std::min<std::uint64_t>(offset, bytes.size()), size));
  };
  return check_bundle(bytes.size(), read, secret);
}

Decoded decode_bundle_entry(const BundleItem& item, std::string_view file, Parts parts,
                            const Secret& secret) {
  if (secret && !secret.accepts_entry(item.mac, item.key, file)) {
    return {std::nullopt, "was changed after the bundle was signed", false};
  }
  return decode(item.key, file, parts);
}

std::unique_ptr<Layer> open_readonly_layer(base::Io& io, const std::string& path,
                                           const Secret& secret, Counters& counters) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return std::make_unique<Directory>(io, DirectoryOptions{path, false, 0, 0}, counters);
  }
  return std::make_unique<Bundle>(io, path, secret);
}

}  // namespace kiln::cache
