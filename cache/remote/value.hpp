// A value on the server: an entry's file and the code that proves who wrote it, as pure functions
// on bytes. The format:
//
//   value := magic mac file
//   magic := "KREMOTE1"        a change of the format takes another name on the server, too
//   mac   := byte{32}          Secret::sign_entry of the key and the file (mac.hpp)
//   file  := byte*             the entry's file (entry.hpp), which says its key and target
//
// The code covers the key under which a value is looked up, the target and the content: a value
// of another key, an older one for another target, or one that was cut is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/entry.hpp"
#include "cache/layer.hpp"
#include "cache/mac.hpp"

namespace kiln::cache {

inline constexpr std::size_t kRemoteHead = 8 + kMacBytes;  ///< bytes before the file

std::string encode_value(const Key& key, std::string_view file, const Secret& secret);

/// An entry with its file, or why there is none.
struct DecodedValue {
  std::optional<Loaded> loaded;
  std::string reason;  ///< for people; empty if there is an entry
};
/// Checks the code before anything else looks at the bytes. Never throws for what they are.
DecodedValue decode_value(const Key& key, std::string_view bytes, const Secret& secret);

// For machines without a compiler, which cannot make the key: where the newest entry of a source
// is, whichever compiler made it. The format:
//
//   pointer := magic mac key
//   magic   := "KSOURCE1"
//   mac     := byte{32}        Secret::sign of the source's key and the entry's, as below
//   key     := u64 u64         the entry's: high, low, little-endian

std::string encode_pointer(const Key& source, const Key& entry, const Secret& secret);

/// The key of the entry, or why there is none. Never throws for what the bytes are.
struct DecodedPointer {
  std::optional<Key> entry;
  std::string reason;  ///< for people; empty if there is a key
};
DecodedPointer decode_pointer(const Key& source, std::string_view bytes, const Secret& secret);

}  // namespace kiln::cache
