// A bundle: many entries in one file, for machines without a compiler. It can be imported, or used
// as a read-only layer as it is. The format, every number little-endian:
//
//   bundle   := magic version flags count index digest entry* checksum
//   magic    := 89 4B 50 4B 47 0D 0A 1A       "\x89KPKG\r\n\x1a"
//   version  := u32                           kBundleVersion
//   flags    := u32                           0
//   count    := u64                           of entries
//   index    := (key:u64,u64 offset:u64 size:u64)*      high and low half; ascending by key
//   digest   := u64                           XXH3-64 of magic .. index: a look-up needs no more
//   entry    := byte{size}                    an entry's file as it is (entry.hpp), one after
//   another checksum := u64 u64                       XXH3-128 (high, low) of everything before
//
// The same entries give the same bytes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/io.hpp"
#include "cache/layer.hpp"
#include "cache/stats.hpp"

namespace kiln::cache {

inline constexpr std::uint32_t kBundleVersion = 1;

struct BundleItem {
  Key key;
  std::uint64_t offset = 0;  ///< of the entry's file, from the start of the bundle
  std::uint64_t size = 0;
};

struct BundleIndex {
  std::vector<BundleItem> items;  ///< ascending by key
  std::string reason;             ///< why there is none, in words
};

/// The bytes of the bundle of those entry files.
std::string encode_bundle(const std::map<Key, std::string>& files);

/// How many bytes hold the index of a bundle that starts with `bytes` (24 or more); 0 if it is
/// none.
std::uint64_t bundle_index_size(std::string_view bytes);
/// Reads and checks the index of a bundle of `total` bytes from its first bundle_index_size()
/// bytes.
BundleIndex decode_bundle_index(std::string_view bytes, std::uint64_t total);
/// Why the whole bundle is not intact; empty if it is. The entries are checked by decode() as they
/// are used.
std::string check_bundle(std::string_view bytes);

/// The directory or bundle at `path`, to be read only. What is wrong with it is logged once, and it
/// then has no entries. `counters` outlives the layer.
std::unique_ptr<Layer> open_readonly_layer(Io& io, const std::string& path, Counters& counters);

}  // namespace kiln::cache
