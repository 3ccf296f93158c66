// A compile that nobody waits for, until somebody does: how an interactive call that needs a key
// which a background program is about to deliver makes that program urgent.
#pragma once

#include <mutex>
#include <span>

#include "cache/key.hpp"
#include "jit/service/compile.hpp"

namespace kiln {

class BackgroundCompile {
 public:
  /// Compiles at background priority, or as what somebody waits for once hurry() was called. Throws
  /// what CompileHandle::get throws, and Error(would_compile) after cancel().
  jit::CompileResult run(jit::CompileRequest request);
  void hurry();
  /// What runs and whatever it will be asked to run, unless somebody waits for it.
  void cancel();

 private:
  std::mutex mutex_;
  bool urgent_ = false;
  bool cancelled_ = false;
  jit::CompileRequest request_;
  jit::CompileHandle handle_;
};

/// While it lives, `compile` is hurried by those who wait for one of the keys.
class Delivery {
 public:
  Delivery(std::span<const cache::Key> keys, BackgroundCompile& compile);
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

 private:
  std::span<const cache::Key> keys_;
  BackgroundCompile& compile_;
};

/// While it lives, somebody waits for that key.
class Wait {
 public:
  explicit Wait(const cache::Key& key);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  const cache::Key& key_;
};

}  // namespace kiln
