// Single flight: one compile per key at a time, among the threads of this process (SingleFlight)
// and among processes (KeyLock). Unrelated keys never wait for each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "cache/directory.hpp"
#include "cache/entry.hpp"
#include "cache/key.hpp"

namespace kiln::cache {

enum class From : std::uint8_t { disk, compiled };

struct Fetched {
  Entry entry;
  From from = From::compiled;
};

/// The first caller for a key runs `work`; those who come meanwhile get its result or its
/// exception.
class SingleFlight {
 public:
  /// Nothing when another thread is at it and has not finished by `deadline`.
  std::optional<Fetched> run(const Key& key, std::chrono::steady_clock::time_point deadline,
                             const std::function<Fetched()>& work);

 private:
  struct Flight {
    std::condition_variable landed;
    std::shared_ptr<const Fetched> result;
    std::exception_ptr failure;
    bool done = false;
  };
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Flight>> flights_;
};

/// The right to compile a key, among processes: a flock on a file beside the entry. The kernel
/// releases it when its owner dies, however that happens; a lock file without an owner is just
/// taken.
class KeyLock {
 public:
  enum class State : std::uint8_t {
    owned,        ///< nobody else compiles this key until the lock is destroyed
    published,    ///< another process has just put something under this key
    expired,      ///< another process is still at it at the deadline
    unavailable,  ///< there can be no lock here (no directory, no permission, no flock)
  };
  KeyLock(Directory& directory, const Key& key, std::chrono::steady_clock::time_point deadline);
  ~KeyLock();
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

  State state() const { return state_; }
  bool waited() const { return waited_; }

 private:
  State acquire(Directory& directory, const Key& key,
                std::chrono::steady_clock::time_point deadline);

  Io& io_;
  Fd shard_;
  Fd fd_;
  std::string name_;
  bool waited_ = false;
  State state_ = State::unavailable;
};

/// Deletes a lock file unless somebody holds it.
void remove_abandoned_lock(Io& io, const Fd& shard, const std::string& name);

}  // namespace kiln::cache
