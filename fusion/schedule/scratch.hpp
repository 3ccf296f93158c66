// Vectors for what the planners compute, which is many short lists for each call: inside a
// ScratchScope they take their memory from the thread's, and nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace kiln::fusion {

/// While one lives, memory of the thread's ScratchVectors comes from a block that the thread keeps,
/// and is taken again when the outermost one ends: vectors that are made inside must be gone by
/// then. What does not fit the block comes from the heap.
class ScratchScope {
 public:
  ScratchScope();
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;
};

namespace detail {
constexpr std::size_t kScratchBytes = 64 << 10;

// Without a constructor or destructor, which every access would have to ask for. Outside of scopes
// nothing of the block is left.
struct ThreadScratch {
  std::byte* block = nullptr;
  std::byte* next = nullptr;
  std::size_t left = 0;
  int scopes = 0;
};
extern constinit thread_local ThreadScratch thread_scratch;

inline void* allocate_scratch(std::size_t bytes) {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  ThreadScratch& scratch = thread_scratch;
  if (bytes > scratch.left) return ::operator new(bytes);
  scratch.left -= bytes;
  return std::exchange(scratch.next, scratch.next + bytes);
}

inline void free_scratch(void* memory) {
  const auto place = reinterpret_cast<std::uintptr_t>(memory);
  const auto block = reinterpret_cast<std::uintptr_t>(thread_scratch.block);
  if (block == 0 || place - block >= kScratchBytes) ::operator delete(memory);
}
}  // namespace detail

template <class T>
struct ScratchAllocator {
  using value_type = T;
  static_assert(alignof(T) <= alignof(std::max_align_t));

  ScratchAllocator() = default;
  template <class U>
  ScratchAllocator(const ScratchAllocator<U>&) {}  // NOLINT: implicit as allocators are

  T* allocate(std::size_t count) {
    return static_cast<T*>(detail::allocate_scratch(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t) { detail::free_scratch(memory); }
  friend bool operator==(const ScratchAllocator&, const ScratchAllocator&) { return true; }
};

/// On the heap outside of a ScratchScope, as any vector.
template <class T>
using ScratchVector = std::vector<T, ScratchAllocator<T>>;

}  // namespace kiln::fusion
