// Stands in for operator new and pthread_mutex_lock to count them. See counted.hpp.
#include "tests/support/counted.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace kiln::testing {
thread_local std::size_t allocations = 0;
thread_local std::size_t locks = 0;
}  // namespace kiln::testing

#ifndef KILN_SANITIZED
void* operator new(std::size_t size) {
  ++kiln::testing::allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t align) {
  ++kiln::testing::allocations;
  const auto unit = static_cast<std::size_t>(align);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {
using Lock = int (*)(pthread_mutex_t*);
Lock real_lock() { return reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock")); }
std::atomic<Lock> found_lock{nullptr};
const bool found_early = (found_lock = real_lock(), true);  // dlsym locks too
}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Lock lock = found_lock.load(std::memory_order_relaxed);
  if (lock == nullptr) lock = real_lock();
  ++kiln::testing::locks;
  return lock(mutex);
}
#endif
