// The file of one cache entry, as pure functions on bytes. Who writes and reads files is elsewhere
// (publish.cpp, directory.cpp). The format, every number little-endian:
//
// clang-format off
//   entry      := head packed code checksum
//   head       := magic version flags key sizes metadata digest
//   magic      := 89 4B 49 4C 4E 0D 0A 1A            "\x89KILN\r\n\x1a": no text transfer survives it
//   version    := u32                                kEntryVersion; everything after it depends on it
//   flags      := u32                                0
//   key        := u64 u64                            high, low: a file under another name is refused
//   sizes      := u64 u64 u64 u64                    of metadata, packed, source (unpacked), code
//   metadata   := field*
//   field      := id:u16 length:u32 byte{length}     ids in entry.cpp; a reader skips unknown ones
//                                                    one has XXH3-128 of the code: loads need no more
//   digest     := u64                                XXH3-64 of magic .. metadata: lists need no more
//   packed     := byte*                              the source, one zstd frame
//   code       := byte*                              an ELF image
//   checksum   := u64 u64                            XXH3-128 (high, low) of everything before
// clang-format on
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
#include "kiln/cache.hpp"

namespace kiln::cache {

inline constexpr std::uint32_t kEntryVersion = 1;
inline constexpr std::size_t kEntryFixedHead = 64;  ///< bytes before the metadata
inline constexpr std::uint64_t kMaxEntryBytes = 256 << 20;
inline constexpr std::uint64_t kMaxSourceBytes = 64 << 20;
inline constexpr std::uint64_t kMaxMetadataBytes = 4 << 20;

/// The bytes of the entry's file.
std::string encode(const Key& key, const Entry& entry);

enum class Parts : std::uint8_t {
  code,  ///< code and metadata without the key's ingredients: what a launch needs
  all,   ///< everything; the source is unpacked
};

/// An entry, or why the bytes are not one that may be used.
struct Decoded {
  std::optional<Entry> entry;
  std::string reason;          ///< for people; empty if there is an entry
  bool other_version = false;  ///< intact as far as one can tell, but for another kiln
};

/// Checks everything: magic, version, key, lengths, digest, checksum, the ELF header of the code.
/// Never throws for what the bytes are (std::bad_alloc for want of memory alone), and never
/// allocates more than they and kMaxSourceBytes allow.
Decoded decode(const Key& key, std::string_view bytes, Parts parts);

/// The head of an entry's file: enough for a list.
struct Head {
  Key key;
  std::uint32_t version = kEntryVersion;
  Metadata metadata;
  std::uint64_t source_bytes = 0;
  std::uint64_t code_bytes = 0;
  std::uint64_t file_bytes = 0;  ///< as the lengths say
  std::uint64_t code_offset = 0;
  std::string code_digest;  ///< XXH3-128 of the code, 16 bytes; empty in entries without one
  std::string reason;       ///< why it is not usable; empty if it is
  bool other_version = false;
};

/// Fits the head of nearly every entry, so that a list reads once per file.
inline constexpr std::uint64_t kLikelyHead = 4096;

/// How long the head is: at least kEntryFixedHead bytes are needed to know. 0 if these are not an
/// entry of this version.
std::uint64_t head_size(std::string_view bytes);
/// Decodes a head of head_size() bytes or more.
Head decode_head(std::string_view bytes, Parts parts = Parts::all);
/// Whether that is the code which the head's digest is of, and one for check_elf(): then it may be
/// used without the rest of the file.
bool is_code_of(const Head& head, std::string_view code);

/// Why `code` is not an ELF image that a driver could be given; empty if it is one.
std::string check_elf(std::string_view code);

}  // namespace kiln::cache
