// The cache as the rest of kiln uses it: a key in, a checked code object out. The parts are in the
// files beside this one; what people and tools do with a cache is in kiln/cache.hpp.
//
// Everything here may be called from any thread, and nothing here throws for what is found on a
// disk: a bad file is a miss, a full or read-only disk is a cache that keeps nothing, and each is
// logged once.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/config.hpp"
#include "cache/directory.hpp"
#include "cache/entry.hpp"
#include "cache/key.hpp"
#include "cache/key_lock.hpp"
#include "cache/remote/queue.hpp"
#include "cache/remote/remote.hpp"
#include "cache/stats.hpp"
#include "kiln/cache.hpp"

namespace kiln::cache {

class Cache {
 public:
  /// Touches no disk yet. Logs once why nothing will be stored, if that is so.
  static std::shared_ptr<Cache> open(Config config = Config::from_environment());
  explicit Cache(Config config);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The metadata and code under that key, from the first layer that has it; a hit in a later layer
  /// is copied into the user's directory, maybe later (Config::later). `source` stays empty:
  /// whoever made the key has it.
  std::optional<Entry> find(const Key& key);

  /// For the code of a find() that is done with: memory for this thread's next one, which is thus
  /// spared fresh pages.
  static void reuse(std::string code) { Directory::reuse(std::move(code)); }

  /// The right to compile a key that find() missed, against every other process and thread: waits
  /// until nobody else has it, gives the entry if its owner has published one meanwhile, and stops
  /// waiting at the deadline. Compile under the lock, publish(), and then drop it.
  Locked lock(const Key& key, std::chrono::steady_clock::time_point deadline);

  /// What the remote tier has of keys that find() missed, in their order, in one round trip; it is
  /// copied into the user's directory. Waits no longer than compiling them is likely to take, and
  /// not at all without a remote tier. Ask under the keys' locks: then a machine asks once.
  std::vector<std::optional<Entry>> fetch(std::span<const Key> keys);

  /// Copies into the user's directory what the remote tier has of these keys and no layer has; many
  /// in a round trip, for each of which it waits as long as compiling them all would take.
  void prefetch(std::span<const Key> keys);
  /// Whether prefetch() has brought it; true once.
  bool take_prefetched(const Key& key);
  /// The keys of what any compiler has made of these sources (key_without_toolchain), the newest
  /// of each, that the remote tier has; in their order, and in as few round trips.
  std::vector<std::optional<Key>> find_sources(std::span<const Key> sources);

  /// As find_any_toolchain(), from the remote tier, with the entry. Waits longer than fetch():
  /// there is nothing else to be done on a machine without a compiler.
  struct Other {
    Key key;
    Entry entry;
  };
  std::optional<Other> fetch_any_toolchain(std::span<const Ingredient> ingredients);

  /// For keys that fetch() missed: which of them this machine compiles, with leases that other
  /// machines respect, and which another one is compiling, for which to ask again after
  /// pause_for_others(). All are ours without a remote tier, or if it does not answer.
  struct Claim {
    std::optional<Entry> entry;    ///< another machine has published it meanwhile
    std::unique_ptr<Lease> lease;  ///< until it is published; null if nobody has to be kept out
    bool elsewhere = false;        ///< another machine is compiling it
  };
  std::vector<Claim> claim(std::span<const Key> keys);
  /// Waits a little longer with each turn.
  void pause_for_others(int turn);

  /// Keeps an entry that was compiled, and sends it to the remote tier behind the caller's back;
  /// false if it was not kept on disk. An entry whose toolchain_identity is empty is never kept or
  /// sent: nobody could tell which compiler its code is from. Nor is one whose code is not ELF.
  bool publish(const Key& key, const Entry& entry);

  /// The key of an entry whose ingredients are these but for the toolchain, the newest if there are
  /// several: for a machine that was given code and has no compiler to make the key with. Reads the
  /// head of every entry, once; what comes later is not seen.
  std::optional<Key> find_any_toolchain(std::span<const Ingredient> ingredients);

  /// A driver refused the code of that key: moves it to quarantine, so that find()
  /// misses it. Layers that cannot be written are not asked for it again by this process.
  void reject(const Key& key, std::string_view reason);

  /// As find(), with the source, and without counting or copying. For tools.
  std::optional<Entry> read(const Key& key);

  const Config& config() const { return config_; }
  /// Why nothing is stored on disk, for people; empty if it is. Reads and writes in the directory,
  /// if it exists, to find out.
  std::string health_error();
  /// The user's directory, or null. Lives as long as the cache.
  Directory* directory() { return user_.get(); }
  /// The read-only layers, in the order in which they are asked.
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

  /// Uses another remote tier from now on, or none.
  void use_remote(std::optional<RemoteSettings> settings, Secret secret);
  /// The remote tier, or null.
  std::shared_ptr<Remote> remote();
  /// The queue of requests for compile servers, over the same server; null without a remote tier.
  std::shared_ptr<RequestQueue> requests();
  /// Whether the remote tier has a usable entry of that key, to be found by that source
  /// (key_without_toolchain): sends it from here if it has not, and waits for the answer.
  bool share(const Key& key, const Key& source);
  /// Waits until the remote tier has what was published; false if it has not at the deadline.
  bool flush_remote(std::chrono::steady_clock::time_point deadline);

  /// What all processes counted; this one's own counts are included.
  Stats stats();
  /// What this process counted and has not yet added to the file.
  Stats own_stats() const { return counters_.read(); }
  bool zero_stats();
  /// Adds this process' counts to the directory's; done by the destructor too.
  void flush_stats();

 private:
  std::optional<Loaded> look_up(const Key& key, Parts parts);
  /// What another layer has; Config::later says when.
  void copy_into_user(const Key& key, std::string bytes);
  std::optional<Entry> find_and_count(const Key& key, bool count_miss);
  bool keep(const Key& key, const Entry& entry);
  std::chrono::steady_clock::time_point remote_deadline(const Remote& remote, std::size_t keys,
                                                        std::chrono::milliseconds longest);
  /// Whether a layer has it; copies it into the user's directory then.
  bool is_local(const Key& key);
  /// Asks the remote tier for parts that are not too many for one round trip, until it fails.
  void ask_in_parts(Remote& remote, std::span<const Key> all,
                    const std::function<void(std::span<const Key> part,
                                             std::chrono::steady_clock::time_point)>& ask);
  /// The positions of those keys that no driver has refused.
  std::vector<std::size_t> acceptable(std::span<const Key> keys);

  const Config config_;
  base::Io& io_;
  Counters counters_;
  std::atomic<std::uint64_t> look_ups_{0};
  std::unique_ptr<Directory> user_;
  std::vector<std::unique_ptr<Layer>> layers_;

  struct Newest {
    Key key;
    std::int64_t created = 0;
  };
  std::once_flag indexed_;
  std::unordered_map<Key, Newest> by_source_;  ///< by key without toolchain

  std::mutex mutex_;  ///< of what follows
  std::unordered_set<Key> rejected_;
  std::shared_ptr<Remote> remote_;
  std::shared_ptr<RequestQueue> requests_;
  std::unordered_set<Key> prefetched_;
};

}  // namespace kiln::cache
