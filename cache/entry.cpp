#include "cache/entry.hpp"

#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cstring>
#include <memory>
#include <new>

#include "base/bytes.hpp"
#include "base/elf.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kEntryMagic = "\x89KILN\r\n\x1a";
constexpr std::size_t kDigestBytes = 8;
constexpr std::size_t kChecksumBytes = 16;
constexpr int kCompressionLevel = 9;

// Numbers in files: append only, never reuse.
enum Field : std::uint16_t {
  kFunction = 1,
  kExpression,
  kSignature,
  kTarget,
  kToolchain,
  kIdentity,
  kOption,
  kIngredient,
  kCompileMs,
  kCreated,
  kRegisters,
  kSgprs,
  kLds,
  kScratch,
  kSpills,
  kEntryName,
  kKilnVersion,
  kLaunch,
  kCodeDigest,  // of the entry, not of its metadata: the last one that is written
  kArgument,
  kOutput,
};

class MetadataWriter {
 public:
  explicit MetadataWriter(std::string& out) : out_(out) {}

  void text(Field field, std::string_view value) {
    if (!value.empty()) item(field, value);
  }
  void item(Field field, std::string_view value) {
    out_.u16(field);
    out_.u32(static_cast<std::uint32_t>(value.size()));
    out_.raw(value);
  }
  void number(Field field, std::uint64_t value) {
    out_.u16(field);
    out_.u32(8);
    out_.u64(value);
  }
  void number(Field field, const std::optional<int>& value) {
    if (value) number(field, static_cast<std::uint64_t>(std::int64_t{*value}));
  }

 private:
  base::ByteWriter out_;
};

std::string digest_of(std::string_view code) {
  const XXH128_hash_t hash = XXH3_128bits(code.data(), code.size());
  std::string bytes;
  base::ByteWriter writer(bytes);
  writer.u64(hash.high64);
  writer.u64(hash.low64);
  return bytes;
}

std::string encode_metadata(const Metadata& metadata) {
  std::string bytes;
  MetadataWriter writer(bytes);
  writer.text(kFunction, metadata.function);
  writer.text(kExpression, metadata.expression);
  writer.text(kSignature, metadata.signature);
  for (const std::string& name : metadata.arguments) writer.item(kArgument, name);
  for (const std::string& name : metadata.outputs) writer.item(kOutput, name);
  writer.text(kTarget, metadata.target);
  writer.text(kToolchain, metadata.toolchain);
  writer.text(kIdentity, metadata.toolchain_identity);
  for (const std::string& option : metadata.options) writer.item(kOption, option);
  for (const Ingredient& ingredient : metadata.ingredients) {
    std::string pair;
    base::ByteWriter(pair).text(ingredient.tag);
    writer.item(kIngredient, pair + ingredient.value);
  }
  std::uint64_t milliseconds = 0;
  std::memcpy(&milliseconds, &metadata.compile_ms, sizeof milliseconds);
  writer.number(kCompileMs, milliseconds);
  writer.number(kCreated, static_cast<std::uint64_t>(metadata.created));
  writer.number(kRegisters, metadata.registers);
  writer.number(kSgprs, metadata.sgprs);
  writer.number(kLds, metadata.lds);
  writer.number(kScratch, metadata.scratch);
  writer.number(kSpills, metadata.spills);
  writer.text(kEntryName, metadata.entry);
  writer.text(kKilnVersion, metadata.kiln_version);
  writer.text(kLaunch, metadata.launch);
  return bytes;
}

std::optional<int> resource(std::string_view value) {
  return static_cast<int>(static_cast<std::int64_t>(base::ByteReader(value).u64()));
}

bool decode_field(std::uint16_t id, std::string_view value, Parts parts, Head& head) {
  Metadata& metadata = head.metadata;
  switch (id) {
    case kFunction: metadata.function = value; break;
    case kExpression: metadata.expression = value; break;
    case kSignature: metadata.signature = value; break;
    case kArgument: metadata.arguments.emplace_back(value); break;
    case kOutput: metadata.outputs.emplace_back(value); break;
    case kTarget: metadata.target = value; break;
    case kToolchain: metadata.toolchain = value; break;
    case kIdentity: metadata.toolchain_identity = value; break;
    case kOption: metadata.options.emplace_back(value); break;
    case kIngredient: {
      if (parts == Parts::code) break;
      base::ByteReader pair(value);
      const std::string_view tag = pair.text();
      if (!pair.ok()) return false;
      metadata.ingredients.push_back({std::string(tag), std::string(pair.raw(pair.left()))});
      break;
    }
    case kCompileMs: {
      const std::uint64_t bits = base::ByteReader(value).u64();
      std::memcpy(&metadata.compile_ms, &bits, sizeof bits);
      break;
    }
    case kCreated:
      metadata.created = static_cast<std::int64_t>(base::ByteReader(value).u64());
      break;
    case kRegisters: metadata.registers = resource(value); break;
    case kSgprs: metadata.sgprs = resource(value); break;
    case kLds: metadata.lds = resource(value); break;
    case kScratch: metadata.scratch = resource(value); break;
    case kSpills: metadata.spills = resource(value); break;
    case kEntryName: metadata.entry = value; break;
    case kKilnVersion: metadata.kiln_version = value; break;
    case kLaunch: metadata.launch = value; break;
    case kCodeDigest: head.code_digest = value; break;
    default: break;
  }
  return true;
}

bool decode_metadata(std::string_view bytes, Parts parts, Head& head) {
  base::ByteReader reader(bytes);
  while (reader.ok() && !reader.at_end()) {
    const std::uint16_t id = reader.u16();
    const std::string_view value = reader.raw(reader.u32());
    if (!reader.ok() || !decode_field(id, value, parts, head)) return false;
  }
  return reader.ok();
}

std::string compress(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), kCompressionLevel);
  if (ZSTD_isError(size)) {
    throw Error(Code::internal, fmt::format("cache::encode: source: {}", ZSTD_getErrorName(size)));
  }
  packed.resize(size);
  return packed;
}

// Two lies would have to agree before anything is allocated for them. Throws std::bad_alloc: want
// of memory says nothing about the bytes.
bool decompress(std::string_view packed, std::uint64_t size, std::string& text) {
  if (ZSTD_getFrameContentSize(packed.data(), packed.size()) != size) return false;
  text.resize(size);
  const std::size_t result =
      ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return !ZSTD_isError(result) && result == size;
}

// The fixed head, with every length already checked against the limits.
struct FixedHead {
  std::uint32_t version = 0;
  Key key;
  std::uint64_t metadata = 0, packed = 0, source = 0, code = 0;

  std::uint64_t head_bytes() const { return kEntryFixedHead + metadata + kDigestBytes; }
  std::uint64_t file_bytes() const { return head_bytes() + packed + code + kChecksumBytes; }
};

struct FixedResult {
  FixedHead head;
  std::string reason;
  bool other_version = false;
};

FixedResult decode_fixed(std::string_view bytes) {
  FixedResult result;
  if (bytes.size() < kEntryFixedHead) {
    result.reason = fmt::format("is truncated: {} bytes", bytes.size());
    return result;
  }
  base::ByteReader reader(bytes.substr(0, kEntryFixedHead));
  if (reader.raw(kEntryMagic.size()) != kEntryMagic) {
    result.reason = "does not start with the magic of a kiln entry";
    return result;
  }
  FixedHead& head = result.head;
  head.version = reader.u32();
  if (head.version != kEntryVersion) {
    result.reason =
        fmt::format("has format version {}, this kiln reads {}", head.version, kEntryVersion);
    result.other_version = true;
    return result;
  }
  const std::uint32_t flags = reader.u32();
  head.key.high = reader.u64();
  head.key.low = reader.u64();
  head.metadata = reader.u64();
  head.packed = reader.u64();
  head.source = reader.u64();
  head.code = reader.u64();
  if (flags != 0) {
    result.reason = fmt::format("has unknown flags {:#x}", flags);
  } else if (head.metadata > kMaxMetadataBytes || head.packed > kMaxEntryBytes ||
             head.source > kMaxSourceBytes || head.code > kMaxEntryBytes) {
    result.reason = "claims a length above the limits of the format";
  }
  return result;
}

std::string wrong_key(const Key& expected, const Key& found) {
  return fmt::format("holds key {}, expected {}", found.hex(), expected.hex());
}

}  // namespace

std::string check_elf(std::string_view code) {
  const std::string error = base::Elf::table_error(code);
  return error.empty() ? error : "holds a code object that " + error;
}

std::string encode(const Key& key, const Entry& entry) {
  std::string metadata = encode_metadata(entry.metadata);
  MetadataWriter(metadata).text(kCodeDigest, digest_of(entry.code));
  const std::string packed = compress(entry.source);
  if (metadata.size() > kMaxMetadataBytes || entry.source.size() > kMaxSourceBytes ||
      packed.size() + entry.code.size() > kMaxEntryBytes - kMaxMetadataBytes - 4096) {
    throw Error(Code::invalid_argument,
                fmt::format("cache::encode: entry of '{}': metadata {}, source {}, code {} bytes: "
                            "above the limits of the format",
                            entry.metadata.function, metadata.size(), entry.source.size(),
                            entry.code.size()));
  }
  std::string bytes;
  bytes.reserve(kEntryFixedHead + metadata.size() + kDigestBytes + packed.size() +
                entry.code.size() + kChecksumBytes);
  base::ByteWriter writer(bytes);
  writer.raw(kEntryMagic);
  writer.u32(kEntryVersion);
  writer.u32(0);
  writer.u64(key.high);
  writer.u64(key.low);
  writer.u64(metadata.size());
  writer.u64(packed.size());
  writer.u64(entry.source.size());
  writer.u64(entry.code.size());
  writer.raw(metadata);
  writer.u64(XXH3_64bits(bytes.data(), bytes.size()));
  writer.raw(packed);
  writer.raw(entry.code);
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), bytes.size());
  writer.u64(checksum.high64);
  writer.u64(checksum.low64);
  return bytes;
}

std::uint64_t head_size(std::string_view bytes) {
  const FixedResult fixed = decode_fixed(bytes);
  return fixed.reason.empty() ? fixed.head.head_bytes() : 0;
}

Head decode_head(std::string_view bytes, Parts parts) {
  const FixedResult fixed = decode_fixed(bytes);
  Head head;
  head.key = fixed.head.key;
  head.version = fixed.head.version;
  head.reason = fixed.reason;
  head.other_version = fixed.other_version;
  if (!head.reason.empty()) return head;
  head.source_bytes = fixed.head.source;
  head.code_bytes = fixed.head.code;
  head.file_bytes = fixed.head.file_bytes();
  head.code_offset = fixed.head.head_bytes() + fixed.head.packed;

  base::ByteReader reader(bytes.substr(kEntryFixedHead));
  const std::string_view metadata = reader.raw(fixed.head.metadata);
  const std::uint64_t digest = reader.u64();
  if (!reader.ok()) {
    head.reason = "is truncated within its metadata";
  } else if (digest != XXH3_64bits(bytes.data(), kEntryFixedHead + metadata.size())) {
    head.reason = "has a head that does not match its digest";
  } else if (!decode_metadata(metadata, parts, head)) {
    head.reason = "has metadata that cannot be read";
  }
  return head;
}

bool is_code_of(const Head& head, std::string_view code) {
  return head.code_digest == digest_of(code) && check_elf(code).empty();
}

Decoded decode(const Key& key, std::string_view bytes, Parts parts) {
  const auto refuse = [](std::string reason) {
    return Decoded{std::nullopt, std::move(reason), false};
  };
  const FixedResult fixed = decode_fixed(bytes);
  if (!fixed.reason.empty()) return {std::nullopt, fixed.reason, fixed.other_version};
  const FixedHead& sizes = fixed.head;
  if (bytes.size() != sizes.file_bytes()) {
    return refuse(fmt::format("is {} bytes, its lengths say {}", bytes.size(), sizes.file_bytes()));
  }
  const std::size_t body = bytes.size() - kChecksumBytes;
  base::ByteReader tail(bytes.substr(body));
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), body);
  const std::uint64_t high = tail.u64();
  if (checksum.high64 != high || checksum.low64 != tail.u64()) {
    return refuse("does not match its checksum");
  }
  Head head = decode_head(bytes, parts);
  if (!head.reason.empty()) return refuse(std::move(head.reason));
  if (head.key != key) return refuse(wrong_key(key, head.key));

  Entry entry;
  entry.metadata = std::move(head.metadata);
  entry.code = bytes.substr(head.code_offset, sizes.code);
  if (std::string reason = check_elf(entry.code); !reason.empty()) return refuse(std::move(reason));
  if (parts == Parts::all &&
      !decompress(bytes.substr(sizes.head_bytes(), sizes.packed), sizes.source, entry.source)) {
    return refuse("has a source that cannot be unpacked");
  }
  return {std::move(entry), {}, false};
}

}  // namespace kiln::cache
