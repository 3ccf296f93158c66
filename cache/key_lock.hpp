// The right to compile a key: one compile per key at a time among processes and threads. Unrelated
// keys never wait for each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/directory.hpp"
#include "cache/entry.hpp"
#include "cache/key.hpp"

namespace kiln::cache {

/// A flock on a file beside the entry. The system releases it when its owner dies, however that
/// happens; a lock file without an owner is just taken.
class KeyLock {
 public:
  enum class State : std::uint8_t {
    owned,        ///< nobody else compiles this key until the lock is destroyed
    published,    ///< the owner has put something under this key that can be used
    expired,      ///< another process is still at it at the deadline
    unavailable,  ///< there can be no lock here (no directory, no permission, no flock)
  };
  /// Waits for the lock until `deadline`. While somebody else has it, `is_usable` is asked of what
  /// stands under the key: true ends the wait as `published`.
  KeyLock(Directory& directory, const Key& key, std::chrono::steady_clock::time_point deadline,
          const std::function<bool()>& is_usable);
  ~KeyLock();
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

  State state() const { return state_; }
  bool waited() const { return waited_; }

 private:
  State acquire(Directory& directory, const Key& key,
                std::chrono::steady_clock::time_point deadline,
                const std::function<bool()>& is_usable);

  base::Io& io_;
  base::UniqueFd shard_;
  base::UniqueFd fd_;
  std::string name_;
  bool waited_ = false;
  State state_ = State::unavailable;
};

/// What Cache::lock() gives.
struct Locked {
  std::optional<Entry> entry;     ///< published by another owner meanwhile; then there is no lock
  std::unique_ptr<KeyLock> lock;  ///< null also where there is no directory to lock in
};

/// Deletes a lock file unless somebody holds it; who has just opened it to take it sees that it is
/// gone and makes another. False, errno: it is still there, EWOULDBLOCK if somebody holds it.
bool remove_free_lock(base::Io& io, const base::UniqueFd& shard, const std::string& name);

}  // namespace kiln::cache
