// Epochs that are counted by retire(): a thread that reads says since which one.
#include "base/reclamation.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>

namespace kiln::base {
namespace {

// Of a thread; used again when that has ended. Never freed, so that any thread may look at all.
struct alignas(64) Reader {
  std::atomic<std::uint64_t> since{0};  // the epoch in which its section began; 0: it reads nothing
  std::uint32_t depth = 0;              // of nested sections
  std::atomic<bool> taken{true};
  Reader* next = nullptr;
};

struct RetiredObjects {
  std::uint64_t epoch;
  std::vector<std::shared_ptr<const void>> objects;
};

// Never destroyed: threads may be at work while the process ends.
struct Epochs {
  std::atomic<std::uint64_t> now{1};
  std::atomic<Reader*> readers{nullptr};
  std::mutex mutex;
  std::vector<RetiredObjects> retired;  // guarded by the mutex
};
Epochs& epochs();

constinit thread_local Reader* this_reader = nullptr;

// A forked child has none of the other threads, which would be reading for ever, and must not find
// the mutex locked by one of them.
void unlock_in_child() {
  for (Reader* reader = epochs().readers.load(); reader != nullptr; reader = reader->next) {
    if (reader != this_reader) reader->since.store(0);
  }
  epochs().mutex.unlock();
}

Epochs& epochs() {
  static Epochs* const instance = [] {
    pthread_atfork([] { epochs().mutex.lock(); }, [] { epochs().mutex.unlock(); }, unlock_in_child);
    return new Epochs;
  }();
  return *instance;
}

// Gives the reader back when its thread ends.
struct ReaderOwner {
  ~ReaderOwner() {
    if (Reader* const reader = std::exchange(this_reader, nullptr)) reader->taken.store(false);
  }
};

Reader& make_reader() {
  static thread_local ReaderOwner owner;
  (void)owner;
  Epochs& all = epochs();
  for (Reader* reader = all.readers.load(); reader != nullptr; reader = reader->next) {
    bool taken = false;
    if (reader->taken.compare_exchange_strong(taken, true)) return *(this_reader = reader);
  }
  auto* const reader = new Reader;
  reader->next = all.readers.load();
  while (!all.readers.compare_exchange_weak(reader->next, reader)) {
  }
  return *(this_reader = reader);
}

// What nobody can be reading. The mutex is held.
std::vector<RetiredObjects> take_unread(Epochs& all) {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Reader* reader = all.readers.load(); reader != nullptr; reader = reader->next) {
    if (const std::uint64_t since = reader->since.load()) oldest = std::min(oldest, since);
  }
  const auto unread = std::ranges::partition(
      all.retired, [&](const RetiredObjects& one) { return one.epoch > oldest; });
  std::vector<RetiredObjects> taken(std::move_iterator(unread.begin()),
                                    std::move_iterator(unread.end()));
  all.retired.erase(unread.begin(), unread.end());
  return taken;
}

}  // namespace

// Sequentially consistent, as the loads by which a reader then finds something: either retire()
// sees the section, or the section begins after the object could be found.
ReadSection::ReadSection() {
  Reader& reader = this_reader != nullptr ? *this_reader : make_reader();
  if (reader.depth++ == 0) reader.since.store(epochs().now.load());
}

ReadSection::~ReadSection() {
  Reader& reader = *this_reader;
  if (--reader.depth == 0) reader.since.store(0, std::memory_order_release);
}

void retire(std::vector<std::shared_ptr<const void>> objects) {
  Epochs& all = epochs();
  std::vector<RetiredObjects> unread;  // destroyed after the lock
  const std::lock_guard lock(all.mutex);
  if (!objects.empty()) all.retired.push_back({all.now.fetch_add(1) + 1, std::move(objects)});
  unread = take_unread(all);
}

}  // namespace kiln::base
