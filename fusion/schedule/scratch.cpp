// See scratch.hpp.
#include "fusion/schedule/scratch.hpp"

namespace kiln::fusion {

constinit thread_local detail::ThreadScratch detail::thread_scratch;

namespace {

// Frees the block when the thread ends.
struct Owner {
  ~Owner() {
    delete[] detail::thread_scratch.block;
    detail::thread_scratch = {};
  }
};

void allocate_block() {
  thread_local Owner owner;
  detail::thread_scratch.block = new std::byte[detail::kScratchBytes];
  (void)owner;
}

}  // namespace

ScratchScope::ScratchScope() {
  detail::ThreadScratch& scratch = detail::thread_scratch;
  if (scratch.block == nullptr) allocate_block();
  if (scratch.scopes++ != 0) return;
  scratch.next = scratch.block;
  scratch.left = detail::kScratchBytes;
}

ScratchScope::~ScratchScope() {
  detail::ThreadScratch& scratch = detail::thread_scratch;
  if (--scratch.scopes == 0) scratch.left = 0;
}

}  // namespace kiln::fusion
