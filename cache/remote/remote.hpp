// The remote tier: entries on a server that many machines share. It knows how an entry is named and
// proved there; connections and their failures are client.hpp's.
//
// An entry is the value (value.hpp) of `<prefix>:1:entry:<32 hex digits of its key>`. The machine
// that compiles a key has `<prefix>:1:lease:<digits>`, whose value is a number of its own and which
// the server forgets some seconds after the machine has stopped renewing it. Which key a source has
// is in `<prefix>:1:source:<digits of its key without the toolchain>`. Requests for compiles are in
// queue.hpp.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cache/layer.hpp"
#include "cache/mac.hpp"
#include "cache/remote/client.hpp"
#include "cache/remote/settings.hpp"
#include "cache/stats.hpp"

namespace kiln::cache {

class Remote;

/// The right to compile a key, against other machines. Renewed while it lives; given back by
/// Remote::publish, or when it is destroyed.
class Lease {
 public:
  Lease(std::shared_ptr<Remote> remote, const Key& key) : remote_(std::move(remote)), key_(key) {}
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  const std::shared_ptr<Remote> remote_;
  const Key key_;
};

class Remote : public std::enable_shared_from_this<Remote> {
 public:
  /// Connects when something is first wanted. `counters` outlives it.
  Remote(RemoteSettings settings, Secret secret, Counters& counters);
  /// What is published and not yet sent is given up; see flush().
  ~Remote();

  /// What the server has of these keys, in their order, in one round trip. What is there and was
  /// not made by who has the secret is refused, counted and logged once.
  std::vector<std::optional<Loaded>> fetch(std::span<const Key> keys, TimePoint deadline);

  /// What became of a key that this machine wants to compile.
  struct Claim {
    std::optional<Loaded> loaded;  ///< another machine has published it meanwhile
    std::unique_ptr<Lease> lease;  ///< this machine compiles it, and others wait
    bool elsewhere = false;        ///< another machine is compiling it; ask again
  };
  /// One of the three for each key, in one round trip; none if there is no answer: then everybody
  /// compiles.
  std::vector<Claim> claim(std::span<const Key> keys, TimePoint deadline);

  /// The keys of the entries that were published last with these sources, in their order, in one
  /// round trip.
  std::vector<std::optional<Key>> find_sources(std::span<const Key> sources, TimePoint deadline);

  /// Sends an entry's file to the server, behind the caller's back. What is there already stays,
  /// unless this process has refused it. Gives the key's lease back, after the entry is there.
  /// `source` is its key without the toolchain.
  void publish(const Key& key, const Key& source, std::string_view file);

  enum class Pushed : std::uint8_t { sent, present, failed };
  /// As publish(), waiting for the answer.
  Pushed push(const Key& key, const Key& source, std::string_view file, TimePoint deadline);

  /// Has find_sources() find an entry that is there under that source.
  bool point(const Key& key, const Key& source, TimePoint deadline);

  /// The keys of all entries on the server, in no order; nothing if it does not answer.
  std::optional<std::vector<Key>> keys(TimePoint deadline) { return scan("entry", deadline); }

  /// What is on the server, under this prefix and in all; nothing if it does not answer.
  struct Usage {
    std::uint64_t entries = 0;
    std::uint64_t compiling = 0;   ///< kernels that a machine has a lease for
    std::uint64_t memory = 0;      ///< bytes, of everything on the server
    std::uint64_t max_memory = 0;  ///< 0: no bound
    std::uint64_t evicted = 0;     ///< names, since the server was started
    std::string version;           ///< "Redis 7.0.15"
  };
  std::optional<Usage> usage(TimePoint deadline);

  /// A driver refused the code of that key: what is compiled in its place replaces it.
  void reject(const Key& key, std::string_view reason);

  /// Waits for what was published; false if some of it is not on the server at the deadline.
  bool flush(TimePoint deadline) { return client_.flush(deadline); }

  const RemoteSettings& settings() const { return client_.settings(); }
  RemoteHealth health() { return client_.health(); }
  /// As health(), after asking the server, which is connected to if it has not been yet.
  RemoteHealth check(TimePoint deadline);

 private:
  friend class Lease;
  std::string name_of(const Key& key) const;
  std::string lease_of(const Key& key) const;
  std::string source_of(const Key& source) const;
  /// The keys in the names of that kind.
  std::optional<std::vector<Key>> scan(std::string_view kind, TimePoint deadline);
  std::vector<Command> renewals();
  /// The command that gives a lease back; nothing if this process has none.
  std::optional<Command> take_release(const Key& key);
  void release(const Key& key);
  bool fits(std::string_view file);
  Command pointing(const Key& key, const Key& source) const;
  void expire(Command& set) const;
  std::vector<Command> publication(const Key& key, const Key& source, std::string_view file);
  /// What the server said to the first of publication(); counts it.
  Pushed count_publication(const std::vector<Reply>& replies);
  std::optional<Loaded> take(const Key& key, const Reply& reply);
  void refuse(const Key& key, std::string_view reason);
  void report(const std::string& name, std::string_view reason);

  const Secret secret_;
  Counters& counters_;
  std::mutex mutex_;
  std::unordered_set<Key> refused_;
  struct Held {
    std::string token;
    pid_t owner;  ///< a forked child does not renew its parent's
  };
  std::unordered_map<Key, Held> leases_;
  Client client_;  // last: its thread uses the above
};

/// Why there can be no remote tier with these; empty if there can.
std::string remote_problem(const RemoteSettings& settings, const Secret& secret);

}  // namespace kiln::cache
