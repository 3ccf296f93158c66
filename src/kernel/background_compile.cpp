// See background_compile.hpp.
#include "kernel/background_compile.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "kiln/error.hpp"

namespace kiln {
namespace {

// Both sides enter themselves before they look for the other, so that neither is missed.
struct Meeting {
  std::mutex mutex;
  std::unordered_map<cache::Key, BackgroundCompile*> deliveries;
  std::unordered_map<cache::Key, int> waits;
};

// Not compile_failed, which the cache would remember.
Error cancelled_error(const jit::CompileRequest& request) {
  return Error(Code::would_compile, fmt::format("{}: the compile for {} was cancelled",
                                                request.function, request.target));
}

Meeting& meeting() {
  static auto* const instance = new Meeting;
  return *instance;
}

}  // namespace

jit::CompileResult BackgroundCompile::run(jit::CompileRequest request) {
  jit::CompileHandle handle;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw cancelled_error(request);
    request.background = !urgent_;
    handle_ = handle = jit::compile_async(request);
    request_ = request;
  }
  try {
    return handle.get();
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw cancelled_error(request);
    throw;
  }
}

void BackgroundCompile::hurry() {
  const std::lock_guard lock(mutex_);
  if (urgent_) return;
  urgent_ = true;
  if (!handle_.valid() || handle_.ready()) return;
  // Asking again for what is queued moves it to the others that somebody waits for.
  jit::CompileRequest again = request_;
  again.background = false;
  jit::compile_async(std::move(again));
}

void BackgroundCompile::cancel() {
  const std::lock_guard lock(mutex_);
  if (urgent_) return;
  cancelled_ = true;
  if (handle_.valid()) handle_.cancel();
}

Delivery::Delivery(std::span<const cache::Key> keys, BackgroundCompile& compile)
    : keys_(keys), compile_(compile) {
  bool wanted = false;
  {
    const std::lock_guard lock(meeting().mutex);
    for (const cache::Key& key : keys) {
      meeting().deliveries[key] = &compile;
      wanted = wanted || meeting().waits.contains(key);
    }
  }
  if (wanted) compile.hurry();
}

Delivery::~Delivery() {
  const std::lock_guard lock(meeting().mutex);
  for (const cache::Key& key : keys_) {
    const auto found = meeting().deliveries.find(key);
    if (found != meeting().deliveries.end() && found->second == &compile_) {
      meeting().deliveries.erase(found);
    }
  }
}

Wait::Wait(const cache::Key& key) : key_(key) {
  const std::lock_guard lock(meeting().mutex);
  ++meeting().waits[key];
  // Under the lock, so that the delivery cannot end meanwhile. hurry() waits for nobody.
  if (const auto found = meeting().deliveries.find(key); found != meeting().deliveries.end()) {
    found->second->hurry();
  }
}

Wait::~Wait() {
  const std::lock_guard lock(meeting().mutex);
  const auto found = meeting().waits.find(key_);
  if (--found->second == 0) meeting().waits.erase(found);
}

}  // namespace kiln
