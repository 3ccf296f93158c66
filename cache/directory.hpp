// One directory of entries: `<root>/3f/3f<30 hex digits>.kiln`. This class finds and checks entries
// (directory.cpp) and writes and evicts them (publish.cpp). What goes wrong is logged once and is a
// miss, or an entry that was not kept; nothing here throws for the state of a disk.
#pragma once

#include <bitset>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io.hpp"
#include "cache/evict.hpp"
#include "cache/layer.hpp"
#include "cache/stats.hpp"
#include "cache/trust.hpp"
#include "kiln/cache.hpp"

namespace kiln::cache {

struct DirectoryOptions {
  std::string path;
  bool writable = false;
  std::uint64_t max_size = 0;       ///< bytes; 0 is no bound
  std::int64_t touch_interval = 0;  ///< nanoseconds
};

/// A file found by a scan, of whatever kind.
struct Item {
  enum class Kind : std::uint8_t { entry, temporary, lock, other };
  Kind kind = Kind::other;
  std::string name;
  Key key;  ///< of an entry or a lock
  struct stat status = {};
};

/// Sub-directories, by their numbers.
using Shards = std::bitset<256>;

class Directory final : public Layer {
 public:
  /// Opens nothing yet. `counters` outlives the directory.
  Directory(base::Io& io, DirectoryOptions options, Counters& counters);

  const std::string& path() const override { return options_.path; }
  std::optional<Loaded> load(const Key& key, Parts parts) override;
  /// Memory that the code of this thread's next load() is put into.
  static void reuse(std::string code);
  void heads(const std::function<void(const Head&)>& visit) override;

  /// Writes an entry's file so that readers see all of it or nothing, and keeps the bound. False:
  /// it was not stored, which has been logged.
  bool publish(const Key& key, std::string_view bytes);
  /// Moves the entry of that key, whatever it is, out of the way.
  void quarantine(const Key& key, std::string_view reason);
  /// Whether there is something under the name of that key.
  bool exists(const Key& key);

  /// Why the directory cannot be read now; empty if it can, or is not there yet. Opens
  /// it to find out.
  std::string unreadable();
  /// Why the directory cannot be read or written now; empty if it can, or is not there yet. Reads
  /// and writes there to find out.
  std::string health_error();

  // For locks, statistics and the tool.
  base::Io& io() const { return io_; }
  std::int64_t now() const { return io_.now(); }
  bool writable() const { return options_.writable; }
  /// The root; null if it is not there or not usable.
  std::shared_ptr<const base::UniqueFd> root(bool create);
  /// A sub-directory of the root, by its number. `to_name_files`: only to open, look at, move or
  /// delete the files in it. Where it cannot be used that is logged.
  base::UniqueFd shard(const base::UniqueFd& root, unsigned number, bool create,
                       bool to_name_files = false);
  /// The same, which logs nothing: why there is none is without the path.
  Opened open_shard(const base::UniqueFd& root, unsigned number, bool create,
                    bool to_name_files = false);
  /// Calls `visit` with the files of those sub-directories, ascending by number, until it returns
  /// false; a file that goes meanwhile is left out. Returns what could not be looked at, and why:
  /// sub-directories that are closed or not trusted, or the root itself. None of that is logged.
  std::vector<Problem> for_each_shard(
      const Shards& shards, const std::function<bool(unsigned number, const base::UniqueFd& shard,
                                                     std::vector<Item>& items)>& visit);
  /// Deletes a file. False, errno: it was not there (ENOENT), or it still is.
  bool remove(const base::UniqueFd& shard, const std::string& name);
  /// Moves a file to quarantine unless it has been replaced since `seen`, or deletes it where it
  /// cannot be moved. False: it is still there, which has been logged.
  bool quarantine(const base::UniqueFd& shard, const std::string& name, const struct stat* seen,
                  std::string_view reason);
  /// Calls `visit` for every file in quarantine. Returns why it could not, if there is one.
  std::optional<Problem> scan_quarantine(
      const std::function<void(const base::UniqueFd& directory, const Item&)>& visit);

  /// The bytes of an entry's file that passed the trust checks, or why there are none.
  struct File {
    enum class State : std::uint8_t { read, absent, unavailable, bad };
    State state = State::absent;
    std::string bytes;
    std::string reason;
    struct stat status = {};
  };
  /// Reads at most `limit` bytes.
  File read_file(const base::UniqueFd& shard, const std::string& name, std::uint64_t limit);
  /// The first bytes, the whole head among them if there is one.
  File read_head(const base::UniqueFd& shard, const std::string& name);

 private:
  Opened open_root(bool create);
  bool scan(const base::UniqueFd& directory, std::vector<Item>& items);
  File open_file(const base::UniqueFd& shard, const std::string& name, base::UniqueFd& fd);
  void read_bytes_of(File& file, const base::UniqueFd& fd, std::uint64_t limit);
  std::optional<Entry> read_code(const Key& key, const File& file, const base::UniqueFd& fd);
  void touch(const File& file, const base::UniqueFd& fd);
  void report(std::string_view what, std::string_view reason);
  void keep_bound(const base::UniqueFd& root, unsigned shard, const std::string& keep);

  base::Io& io_;
  const DirectoryOptions options_;
  Counters& counters_;
  std::mutex mutex_;  ///< of the two below
  std::shared_ptr<const base::UniqueFd> root_;
  std::string untrusted_;  ///< why the directory will never be used by this process
};

unsigned shard_of(const Key& key);
/// Every sub-directory.
inline Shards all_shards() { return Shards().set(); }
std::string entry_name(const Key& key);
std::string lock_name(const Key& key);

}  // namespace kiln::cache
