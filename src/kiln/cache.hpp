// The cache of compiled kernels, for a program that wants to look at it, move it or tidy it: what
// the tool `kiln cache` uses. Functions find and fill the cache by themselves; nothing here is
// needed for that.
//
//   auto cache = kiln::cache::open();
//   for (const kiln::cache::Listing& entry : kiln::cache::list(*cache, {.target = "gfx90a"}))
//     std::printf("%s %s\n", entry.key.hex().c_str(), entry.metadata.expression.c_str());
//
// Everything is safe from any thread and beside running programs, of this process and others: what
// is deleted under them is compiled again. What a call cannot do it throws as kiln::Error.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cache {
/// An open cache. Its own functions are kiln's; callers have those below. Safe from any thread.
class Cache;
}  // namespace kiln::cache

#pragma GCC visibility push(default)

namespace kiln::cache {

/// The key of an entry: XXH3-128 of everything that can change the code object.
struct Key {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  /// 32 lower-case hex digits.
  std::string hex() const;
  /// The inverse of hex(); nothing for any other text.
  static std::optional<Key> parse(std::string_view text);
  friend auto operator<=>(const Key&, const Key&) = default;
};

/// One thing that is hashed into a key, with a tag that says what it is. A tag may come several
/// times and the order counts (compile options). The tags kiln uses, and why each is in the key:
///   preamble    a header of the device code that the kernel starts with, by name and hash
///   source      the complete text of the kernel after it
///   option      one per compile option, in order: -O2 -O0 is not -O0 -O2. One says the wave size,
///               since wave32 and wave64 code differ on targets that have both
///   target      gfx90a:sramecc+:xnack-, with its features: code for one does not run on another
///   toolchain   its identity: the same source gives other code with another compiler
///   env.NAME    environment variables that change what the compiler emits
struct Ingredient {
  std::string tag;
  std::string value;
  friend bool operator==(const Ingredient&, const Ingredient&) = default;
};

/// Where an entry came from and what it needs; for people and tools, never for the driver.
struct Metadata {
  std::string function;    ///< the function's name
  std::string expression;  ///< in the text form
  std::string signature;   ///< dtypes and layout of the operands
  /// What the function that was compiled first calls its arguments and outputs, which the source
  /// names by position. Empty for kernels whose source is the user's own.
  std::vector<std::string> arguments;
  std::vector<std::string> outputs;
  std::string target;              ///< "gfx90a:sramecc+:xnack-"
  std::string toolchain;           ///< for people: "HIP 5.2.21153"
  std::string toolchain_identity;  ///< which compiler exactly; an entry without is never kept
  std::vector<std::string> options;
  std::vector<Ingredient> ingredients;  ///< of the key; a long value as its hash and length
  double compile_ms = 0;
  std::int64_t created = 0;      ///< seconds since 1970
  std::optional<int> registers;  ///< per thread
  std::optional<int> sgprs;
  std::optional<int> lds;      ///< bytes per block
  std::optional<int> scratch;  ///< bytes per thread
  std::optional<int> spills;
  std::string entry;  ///< the kernel's name in the code object
  std::string kiln_version;
  std::string launch;  ///< how its caller uses it
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

/// A whole entry.
struct Entry {
  Metadata metadata;
  std::string source;  ///< what was compiled
  std::string code;    ///< the code object, an ELF image
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// The cache in `directory`, or, without one, that which kiln::Function uses: KILN_CACHE_DIR, else
/// $XDG_CACHE_HOME/kiln, else ~/.cache/kiln. Other settings are those of the environment, or what
/// use_remote() has chosen. Touches no disk yet. Throws Error(not_found) that says why when nothing
/// is kept on disk (KILN_CACHE=off).
std::shared_ptr<Cache> open(const std::string& directory = {});

/// The directory, absolute.
std::string directory(const Cache& cache);
/// Why the directory cannot be read or written, for people; empty if it can, or if it will be made
/// when there is something to keep. Tries it.
std::string health_error(Cache& cache);

/// One entry, from the head of its file: the code is not read and nothing is unpacked.
struct Listing {
  Key key;
  Metadata metadata;
  std::uint64_t file_bytes = 0;
  std::uint64_t code_bytes = 0;
  std::uint64_t source_bytes = 0;  ///< unpacked
  std::int64_t last_used = 0;      ///< seconds since 1970; renewed every ten minutes of use
  std::string path;                ///< of the file
  std::string problem;             ///< why it is not usable, in words; empty if it seems to be
  bool other_version = false;      ///< written by a kiln with another entry format
};

/// Which entries: those that match everything that is set.
struct Filter {
  std::string target = {};    ///< the whole target, or its part before the first colon
  std::string function = {};  ///< the whole name
  std::vector<Key> keys = {};
  bool matches(const Listing& listing) const;
};

/// Something in the directory that is not as it should be.
struct Problem {
  std::string path;
  std::string reason;
  bool repaired = false;
};

/// Calls `visit` with every entry of the directory that matches, in the order of their keys, until
/// it returns false. Entries that come or go meanwhile may be left out. Returns the sub-directories
/// that could not be looked at since they are closed or not trusted; those that none of the
/// filter's keys can be in are not looked at.
std::vector<Problem> for_each(Cache& cache, const Filter& filter,
                              const std::function<bool(const Listing&)>& visit);
/// All that match. Throws Error(io) that names the first sub-directory that could not be looked at,
/// if there is any: for_each() has the rest.
std::vector<Listing> list(Cache& cache, const Filter& filter = {});
/// The one of that key; nothing if the directory has none. With for_each(), which has each for a
/// moment only, a way to go through more entries than fit in memory in any order.
std::optional<Listing> find_listing(Cache& cache, const Key& key);

/// The entry whose key starts with `prefix` (1 to 32 hex digits). Throws Error(not_found) if there
/// is none, Error(io) if there is none and not everything could be looked at, and
/// Error(invalid_argument) if there are several or `prefix` is not hex.
Key resolve(Cache& cache, std::string_view prefix);

/// The whole entry, checked, from the directory or a read-only layer. Throws Error(not_found) if
/// there is none that is usable.
Entry read(Cache& cache, const Key& key);

/// Where the directory has the file of that key, whether there is one or not.
std::string path_of(const Cache& cache, const Key& key);

/// What is on disk now.
struct Usage {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t temporaries = 0;  ///< being written, or left by a process that was killed
  std::uint64_t max_size = 0;     ///< bytes above which the least recently used go; 0: no bound
  std::vector<Problem> problems;  ///< sub-directories that could not be looked at, not counted
};
Usage usage(Cache& cache);

enum class Count : std::uint8_t {
  hits,       ///< entries found on disk, in any layer
  misses,     ///< looked for and not found
  compiled,   ///< compiled because they were not found
  waited,     ///< found because another process compiled them meanwhile
  published,  ///< entries written
  published_bytes,
  evicted,
  evicted_bytes,
  quarantined,  ///< files that were not what they should be, or that a driver refused
  compile_ms,   ///< that `compiled` took together
  remote_hits,  ///< entries that the remote tier had, after a miss on disk
  remote_misses,
  remote_published,  ///< entries that are on the server because of us
  remote_refused,    ///< values on the server that are not what they should be
  remote_failures,   ///< look-ups and publications that the server did not answer, or not in time
};
inline constexpr std::size_t kCounts = 15;
std::string_view name(Count count);

/// How often things happened, by all processes that used the directory, since it was made or the
/// counters were set to zero. What a running process counted comes in now and then.
struct Stats {
  std::array<std::uint64_t, kCounts> values{};
  std::uint64_t& operator[](Count count) { return values[static_cast<std::size_t>(count)]; }
  std::uint64_t operator[](Count count) const { return values[static_cast<std::size_t>(count)]; }
};
Stats stats(Cache& cache);
/// Throws Error(io) if they cannot be written.
void zero_stats(Cache& cache);

struct Verification {
  std::uint64_t entries = 0;  ///< read whole and checked, source unpacked
  std::uint64_t bytes = 0;
  std::uint64_t other_versions = 0;  ///< left alone
  std::vector<Problem> problems;
};
/// Reads and checks every entry and what lies about beside them; a sub-directory that cannot be
/// looked at is a problem. With `repair`, bad entries go to quarantine, and what dead processes
/// left is deleted, as far as that can be done: Problem::repaired says whether it was.
Verification verify(Cache& cache, bool repair = false);

struct Recompilation {
  std::uint64_t same = 0;
  std::uint64_t skipped = 0;  ///< made by a compiler that is not here
  std::vector<Problem> problems;
};
/// Compiles every entry again that the compilers of this machine have made, and compares the code
/// byte for byte. Changes nothing.
Recompilation recompile(Cache& cache, const Filter& filter = {});

struct TrimPolicy {
  std::optional<std::uint64_t> max_size = {};           ///< bytes; the least recently used go
  std::optional<std::chrono::seconds> unused_for = {};  ///< what was not used for so long goes
  Filter filter = {};                                   ///< only these go
  bool dry_run = false;                                 ///< only says what would go
};
struct Removed {
  std::vector<Listing> entries;
  std::uint64_t bytes = 0;
};
/// Removes what the policy says; without max_size and unused_for, everything the filter matches.
/// What dead processes left goes too: locks, unfinished files. Throws Error(io) that names the
/// directory and the reason, after removing the rest, if something could not be removed or, also
/// with dry_run, looked at.
Removed trim(Cache& cache, const TrimPolicy& policy);
/// Removes every entry of every version, the quarantine, and what dead processes left. Throws as
/// trim() does.
Removed clear(Cache& cache);

/// Uses the server at `url` (as in KILN_REMOTE_CACHE) as the remote tier of kiln::Function's cache
/// and of those that are opened from now on, with a secret (as in KILN_CACHE_SECRET), in place of
/// what the environment says; an empty URL: none. Does not connect yet. Throws
/// Error(invalid_argument) for a URL that is none or a missing or short secret, Error(unsupported)
/// where this build cannot reach such a server.
void use_remote(const std::string& url, const std::string& secret);

/// What a bundle says about who made it. Signatures are made and checked with KILN_CACHE_SECRET.
enum class Signature : std::uint8_t {
  none,       ///< it has none
  unchecked,  ///< it has one, and there is no secret here to check it with
  good,       ///< made with the secret of this process
};

struct Transfer {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t present = 0;   ///< import: already there, left as they were
  std::uint64_t vanished = 0;  ///< export, push: evicted or removed by others meanwhile, left out
  Signature signature = Signature::none;
  std::vector<Problem> problems;  ///< entries and sub-directories that were left out, and why
};
/// Called after each entry, with how many of how many were looked at.
using TransferProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes the matching entries, each checked, into one file: a bundle, for import_bundle() or, as
/// it is, for KILN_CACHE_READONLY_DIRS. The same entries give the same bytes. It is signed where
/// there is a KILN_CACHE_SECRET, and appears whole or not at all; until then it takes room twice,
/// in the directory of `path`. One entry at a time is in memory. Throws Error(io), or
/// Error(not_found) if nothing matches.
Transfer export_bundle(Cache& cache, const std::string& path, const Filter& filter = {},
                       const TransferProgress& progress = {});
/// Checks a whole bundle, then copies its entries, each read and checked by itself. Throws
/// Error(invalid_argument) when it is not intact, or when there is a KILN_CACHE_SECRET and the
/// bundle is not signed with it; Error(io) when it cannot be read or nothing can be kept.
Transfer import_bundle(Cache& cache, const std::string& path,
                       const TransferProgress& progress = {});

/// Sends the matching entries, each checked, to the remote tier; `present`: it has them already.
/// Throws Error(not_found) without a remote tier (KILN_REMOTE_CACHE, use_remote()) or if nothing
/// matches, Error(io) if its server does not answer.
Transfer push(Cache& cache, const Filter& filter = {}, const TransferProgress& progress = {});
/// Copies what the remote tier has and the directory does not. Reads every entry that is missing,
/// if only to see whether it matches. Throws as push() does, but not if nothing matches.
Transfer pull(Cache& cache, const Filter& filter = {}, const TransferProgress& progress = {});

struct Difference {
  std::string tag;  ///< of the ingredient
  std::string a;    ///< its value in A; empty if A has none
  std::string b;
  std::string words;  ///< a sentence
};
/// Why two entries are two: the ingredients of their keys that differ, in the order in which they
/// are in the key. For a source, `words` names the first line that differs.
std::vector<Difference> explain(const Entry& a, const Entry& b);

}  // namespace kiln::cache

template <>
struct std::hash<kiln::cache::Key> {
  std::size_t operator()(const kiln::cache::Key& key) const noexcept { return key.low; }
};

#pragma GCC visibility pop
