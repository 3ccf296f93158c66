// A bundle: many entries in one file, for machines without a compiler. It can be imported, or used
// as a read-only layer as it is. The format, every number little-endian:
//
// clang-format off
//   bundle    := magic version flags count item* signature? digest entry* checksum
//   magic     := 89 4B 50 4B 47 0D 0A 1A       "\x89KPKG\r\n\x1a"
//   version   := u32                           kBundleVersion
//   flags     := u32                           1: signed; 0: not
//   count     := u64                           of items and entries
//   item      := key:u64,u64 offset:u64 size:u64 code:byte{32}?    key as high, low; ascending by key
//   code      := byte{32}                      if signed: Secret::sign_entry of the entry (mac.hpp)
//   signature := byte{32}                      if signed: Secret::sign("bundle", magic .. items)
//   digest    := u64                           XXH3-64 of magic .. signature: a look-up needs no more
//   entry     := byte{size}                    an entry's file as it is (entry.hpp), one after another
//   checksum  := u64 u64                       XXH3-128 (high, low) of everything before
// clang-format on
//
// The same entries and secret give the same bytes. The codes of the entries are in what the
// signature covers, so a look-up checks what it uses without reading the rest.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/io.hpp"
#include "cache/layer.hpp"
#include "cache/mac.hpp"
#include "cache/stats.hpp"

namespace kiln::cache {

inline constexpr std::uint32_t kBundleVersion = 1;

struct BundleItem {
  Key key;
  std::uint64_t offset = 0;  ///< of the entry's file, from the start of the bundle
  std::uint64_t size = 0;
  Mac mac{};  ///< of the entry's file, if the bundle is signed
};

struct BundleIndex {
  std::vector<BundleItem> items;  ///< ascending by key
  Signature signature = Signature::none;
  std::string reason;  ///< why there is none, for people
};

/// Entry files on their way into a bundle: their bytes wait in a file, their places in memory.
class BundleWriter {
 public:
  /// `waiting`: an empty file, open for reading and writing. Signs if there is a secret.
  BundleWriter(base::Io& io, base::UniqueFd waiting, const Secret& secret);
  /// Keys ascend. False, errno: it failed.
  bool add(const Key& key, std::string_view file);
  std::size_t entries() const { return items_.size(); }
  /// Writes the bundle into an empty file. False, errno: it failed.
  bool write(const base::UniqueFd& to);

 private:
  std::string index() const;

  base::Io& io_;
  base::UniqueFd waiting_;
  Secret secret_;
  std::vector<BundleItem> items_;  ///< with offsets into what waits
  std::uint64_t bytes_ = 0;
};

/// How many bytes hold the index of a bundle that starts with `bytes` (24 or more); 0 if it is
/// none.
std::uint64_t bundle_index_size(std::string_view bytes);
/// Reads and checks the index of a bundle of `total` bytes from its first bundle_index_size()
/// bytes. With a secret, refuses what is not signed with it.
BundleIndex decode_bundle_index(std::string_view bytes, std::uint64_t total, const Secret& secret);
/// Bytes [offset, offset + size) of a bundle; fewer if it ends before.
using ReadBundle = std::function<std::string(std::uint64_t offset, std::uint64_t size)>;
/// The index of a bundle of `total` bytes that is there whole, after checking all of it but the
/// entries themselves, which decode_bundle_entry() checks as they are used. Reads a part at a time.
BundleIndex check_bundle(std::uint64_t total, const ReadBundle& read, const Secret& secret);
/// The index of a bundle in memory, after checking all of it but the entries themselves.
BundleIndex check_bundle(std::string_view bytes, const Secret& secret);
/// decode() of an entry's file, after checking its code if there is a secret.
Decoded decode_bundle_entry(const BundleItem& item, std::string_view file, Parts parts,
                            const Secret& secret);

/// The directory or bundle at `path`, to be read only. What is wrong with it is logged once, and it
/// then has no entries. `counters` outlives the layer.
std::unique_ptr<Layer> open_readonly_layer(base::Io& io, const std::string& path,
                                           const Secret& secret, Counters& counters);

}  // namespace kiln::cache
