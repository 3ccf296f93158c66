// How often this thread has allocated by operator new and locked a mutex. Not under a sanitizer,
// which has its own of both (KILN_SANITIZED).
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KILN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KILN_SANITIZED 1
#endif
#endif

namespace kiln::testing {
extern thread_local std::size_t allocations;
extern thread_local std::size_t locks;
}  // namespace kiln::testing
