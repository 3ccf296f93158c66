// See scratch.hpp.
#include "fusion/schedule/scratch.hpp"

#include <functional>
#include <new>
#include <utility>

namespace kiln::fusion {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;

// Without a constructor or destructor, which every access would have to ask for.
struct Thread {
  std::byte* block = nullptr;
  std::size_t used = 0;
  int scopes = 0;

  bool owns(const void* memory) const {
    const std::less_equal<> before;
    return block != nullptr && before(block, memory) && !before(block + kScratchBytes, memory);
  }
};
constinit thread_local Thread thread;

// Frees the block when the thread ends.
struct Owner {
  ~Owner() { delete[] std::exchange(thread.block, nullptr); }
};

void allocate_block() {
  thread_local Owner owner;
  thread.block = new std::byte[kScratchBytes];
  (void)owner;
}

}  // namespace

ScratchScope::ScratchScope() {
  if (thread.block == nullptr) allocate_block();
  ++thread.scopes;
}

ScratchScope::~ScratchScope() {
  if (--thread.scopes == 0) thread.used = 0;
}

void* detail::allocate_scratch(std::size_t bytes) {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (thread.scopes == 0 || bytes > kScratchBytes - thread.used) return ::operator new(bytes);
  void* const memory = thread.block + thread.used;
  thread.used += bytes;
  return memory;
}

void detail::free_scratch(void* memory, std::size_t) {
  if (!thread.owns(memory)) ::operator delete(memory);
}

}  // namespace kiln::fusion
