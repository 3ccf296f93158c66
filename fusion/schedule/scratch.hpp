// Vectors for what the planners compute, which is many short lists for each call: inside a
// ScratchScope they take their memory from the thread's, and nothing is allocated.
#pragma once

#include <cstddef>
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
void* allocate_scratch(std::size_t bytes);
void free_scratch(void* memory, std::size_t bytes);
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
  void deallocate(T* memory, std::size_t count) { detail::free_scratch(memory, count * sizeof(T)); }
  friend bool operator==(const ScratchAllocator&, const ScratchAllocator&) { return true; }
};

/// On the heap outside of a ScratchScope, as any vector.
template <class T>
using ScratchVector = std::vector<T, ScratchAllocator<T>>;

}  // namespace kiln::fusion
