// The file of one cache entry, as pure functions on bytes. Who writes and reads files is elsewhere
// (publish.cpp, directory.cpp). The format, every number little-endian:
//
//   entry      := head packed code checksum
//   head       := magic version flags key sizes metadata digest
//   magic      := 89 4B 49 4C 4E 0D 0A 1A            "\x89KILN\r\n\x1a": no text transfer survives
//   it version    := u32                                kEntryVersion; everything after it depends
//   on it flags      := u32                                0 key        := u64 u64 high, low: a
//   file under another name is refused sizes      := u64 u64 u64 u64                    of
//   metadata, packed, source (unpacked), code metadata   := field* field      := id:u16 length:u32
//   byte{length}     ids in entry.cpp; a reader skips unknown ones digest     := u64 XXH3-64 of
//   magic .. metadata: lists need no more packed     := byte*                              the
//   source, one zstd frame code       := byte*                              an ELF image checksum
//   := u64 u64                            XXH3-128 (high, low) of everything before
//
// The file ends after the checksum. A change that an old reader would get wrong takes a new
// version; files of several versions live beside each other, and each reader leaves the others'
// alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.hpp"

namespace kiln::cache {

inline constexpr std::uint32_t kEntryVersion = 1;
inline constexpr std::size_t kEntryFixedHead = 64;  ///< bytes before the metadata
inline constexpr std::uint64_t kMaxEntryBytes = 256 << 20;
inline constexpr std::uint64_t kMaxSourceBytes = 64 << 20;
inline constexpr std::uint64_t kMaxMetadataBytes = 4 << 20;

/// Where an entry came from and what it needs; for people and tools, never for the driver.
struct Metadata {
  std::string function;            ///< the function's name
  std::string expression;          ///< in the text form
  std::string signature;           ///< dtypes and layout of the operands
  std::string target;              ///< "gfx90a:sramecc+:xnack-"
  std::string toolchain;           ///< for people: "HIP 5.2.21153"
  std::string toolchain_identity;  ///< cache.md; empty if it could not be established
  std::vector<std::string> options;
  std::vector<Ingredient> ingredients;  ///< of the key, as summarise() gives them
  double compile_ms = 0;
  std::int64_t created = 0;      ///< seconds since 1970; publish fills in 0
  std::optional<int> registers;  ///< per thread
  std::optional<int> sgprs;
  std::optional<int> lds;      ///< bytes per block
  std::optional<int> scratch;  ///< bytes per thread
  std::optional<int> spills;
  std::string entry;         ///< the kernel's name in the code object
  std::string kiln_version;  ///< publish fills in the empty one
  std::string launch;        ///< the caller's own; given back verbatim
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

struct Entry {
  Metadata metadata;
  std::string source;  ///< what was compiled; empty when only the code was asked for
  std::string code;    ///< the code object, an ELF image
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// The bytes of the entry's file.
std::string encode(const Key& key, const Entry& entry);

enum class Parts : std::uint8_t {
  code,  ///< metadata and code: what a launch needs
  all,   ///< the source too, which is unpacked
};

/// An entry, or why the bytes are not one that may be used.
struct Decoded {
  std::optional<Entry> entry;
  std::string reason;          ///< in words; empty if there is an entry
  bool other_version = false;  ///< intact as far as one can tell, but for another kiln
};

/// Checks everything: magic, version, key, lengths, digest, checksum, the ELF header of the code.
/// Never throws for what the bytes are, and never allocates more than they and kMaxSourceBytes
/// allow.
Decoded decode(const Key& key, std::string_view bytes, Parts parts);

/// The head of an entry's file: enough for a list.
struct Head {
  Key key;
  std::uint32_t version = kEntryVersion;
  Metadata metadata;
  std::uint64_t source_bytes = 0;
  std::uint64_t code_bytes = 0;
  std::uint64_t file_bytes = 0;  ///< as the lengths say
  std::string reason;            ///< why it is not usable; empty if it is
  bool other_version = false;
};

/// How long the head is: at least kEntryFixedHead bytes are needed to know. 0 if these are not an
/// entry of this version.
std::uint64_t head_size(std::string_view bytes);
/// Decodes a head of head_size() bytes or more.
Head decode_head(std::string_view bytes);

/// Why `code` is not an ELF image that a driver could be given; empty if it is one.
std::string check_elf(std::string_view code);

}  // namespace kiln::cache
