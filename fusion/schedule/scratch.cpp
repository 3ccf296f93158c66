// See scratch.hpp.
#include "fusion/schedule/scratch.hpp"

#include <functional>
#include <memory>
#include <new>

namespace kiln::fusion {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;

struct Thread {
  std::unique_ptr<std::byte[]> block;
  std::size_t used = 0;
  int scopes = 0;

  bool owns(const void* memory) const {
    const std::less_equal<> before;
    return block && before(block.get(), memory) && !before(block.get() + kScratchBytes, memory);
  }
};
thread_local Thread thread;

}  // namespace

ScratchScope::ScratchScope() {
  if (!thread.block) thread.block = std::make_unique_for_overwrite<std::byte[]>(kScratchBytes);
  ++thread.scopes;
}

ScratchScope::~ScratchScope() {
  if (--thread.scopes == 0) thread.used = 0;
}

void* detail::allocate_scratch(std::size_t bytes) {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (thread.scopes == 0 || bytes > kScratchBytes - thread.used) return ::operator new(bytes);
  void* const memory = thread.block.get() + thread.used;
  thread.used += bytes;
  return memory;
}

void detail::free_scratch(void* memory, std::size_t) {
  if (!thread.owns(memory)) ::operator delete(memory);
}

}  // namespace kiln::fusion
