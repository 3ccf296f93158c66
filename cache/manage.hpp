// What a person or a tool does with a cache: list, verify, trim, clear, export, import. Safe beside
// running programs: whatever is deleted under them is a miss. Unlike the rest of this room, a call
// here was asked for by somebody who wants to know: what it cannot do it throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"

namespace kiln::cache {

/// One entry, from its head alone: nothing is unpacked and the code is not read.
struct Listing {
  Key key;
  Metadata metadata;
  std::uint64_t file_bytes = 0;
  std::uint64_t code_bytes = 0;
  std::uint64_t source_bytes = 0;  ///< unpacked
  std::int64_t last_used = 0;      ///< seconds since 1970, to within Config::touch_interval
  std::string path;                ///< of the file
  std::string problem;             ///< why it is not usable, in words; empty if it seems to be
  bool other_version = false;      ///< written by a kiln with another entry format
};

/// Which entries: all that match everything that is set.
struct Filter {
  std::string target;    ///< the whole target, or its part before the first colon
  std::string function;  ///< the whole name
  std::vector<Key> keys;
  bool matches(const Listing& listing) const;
};

/// The entries of the user's directory in the order of their keys. `visit` returns false to stop.
void for_each(Cache& cache, const std::function<bool(const Listing&)>& visit);
std::vector<Listing> list(Cache& cache, const Filter& filter = {});
/// The entry whose key starts with `prefix` (hex digits). Throws Error(not_found) if there is none,
/// Error(invalid_argument) if there are several or `prefix` is not hex.
Key resolve(Cache& cache, std::string_view prefix);

/// What is on disk now.
struct Usage {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t temporaries = 0;  ///< being written, or left by a process that was killed
  std::uint64_t max_size = 0;     ///< 0: no bound
};
Usage usage(Cache& cache);

struct Problem {
  std::string path;
  std::string reason;
  bool repaired = false;
};
struct Verification {
  std::uint64_t entries = 0;  ///< read whole and checked, source unpacked
  std::uint64_t bytes = 0;
  std::uint64_t other_versions = 0;  ///< left alone
  std::vector<Problem> problems;
};
/// Reads and checks every entry and what lies about beside them. With `repair`, bad entries go to
/// quarantine, and what dead processes left is deleted.
Verification verify(Cache& cache, bool repair);

struct TrimPolicy {
  std::optional<std::uint64_t> max_size;           ///< bytes; the least recently used go
  std::optional<std::chrono::seconds> unused_for;  ///< not used for so long
  Filter filter;                                   ///< only these go
  bool dry_run = false;
};
struct Removed {
  std::vector<Listing> entries;
  std::uint64_t bytes = 0;
};
/// Removes what the policy says; without max_size and unused_for, everything the filter matches.
Removed trim(Cache& cache, const TrimPolicy& policy);
/// Removes every entry of every version, the quarantine, and what dead processes left.
Removed clear(Cache& cache);

struct Transfer {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t present = 0;      ///< import: already there, left as they were
  std::vector<Problem> problems;  ///< entries that were left out, and why
};
/// Writes a bundle (bundle.hpp) of the matching entries, each checked; the file appears whole or
/// not at all. Throws Error(io), or Error(not_found) if nothing matches.
Transfer export_bundle(Cache& cache, const std::string& path, const Filter& filter = {});
/// Checks a whole bundle, then copies its entries. Throws Error(invalid_argument) when it is not
/// intact, Error(io) when it cannot be read or nothing can be kept.
Transfer import_bundle(Cache& cache, const std::string& path);

}  // namespace kiln::cache
