// The boundary between C and C++: no exception crosses it. What is thrown becomes a status and the
// thread's last error; what a caller hands over is checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "kiln/kiln.h"

namespace kiln::c {

/// What a function of the caller returned in place of KILN_OK.
struct CallbackFailure {
  kiln_status status = KILN_CALLBACK;
};

/// Inside a handler: keeps what was thrown as the thread's last error. Returns its code.
kiln_status keep_error() noexcept;

/// Runs the body of a function of the API, which gets the function's name for its messages.
template <class Body>
kiln_status guard(const char* function, const Body& body) noexcept {
  try {
    body(function);
    return KILN_OK;
  } catch (...) {
    return keep_error();
  }
}

/// Throws CallbackFailure for what is not KILN_OK.
inline void check_callback(kiln_status status) {
  if (status != KILN_OK) throw CallbackFailure{status};
}

[[noreturn]] void fail_null(const char* function, const char* argument);
[[noreturn]] void fail_reserved(const char* function, const char* argument);
[[noreturn]] void fail_size(const char* function, const char* argument, const std::string& problem);

/// Throws Error(invalid_argument) for NULL.
template <class T>
T& require(T* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) fail_null(function, argument);
  return *pointer;
}

inline const char* require_text(const char* text, const char* function, const char* argument) {
  return &require(text, function, argument);
}

/// The structure as this library knows it: what an older caller's has not is zero. Throws
/// Error(invalid_argument) for a size that is none, and where a newer caller has set what this
/// library does not know. NULL: all of it zero.
template <class T>
T sized(const T* given, const char* function, const char* argument) {
  T known{};
  if (given != nullptr) {
    const std::size_t size = given->size;
    if (size < sizeof given->size) fail_size(function, argument, "is not set; use KILN_INIT");
    std::memcpy(&known, given, std::min(size, sizeof known));
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof known; i < size; ++i) {
      if (bytes[i] != 0)
        fail_size(function, argument, "has fields that this libkiln does not know");
    }
  }
  known.size = sizeof known;
  return known;
}

/// Checks the size of a structure that is to be filled in.
template <class T>
void require_sized(const T* to, const char* function, const char* argument) {
  if (require(to, function, argument).size < sizeof to->size) {
    fail_size(function, argument, "is not set; use KILN_INIT");
  }
}

/// Fills in as much as the caller's structure has.
template <class T>
void put_sized(T* to, T value) {
  value.size = to->size;
  std::memcpy(to, &value, std::min(to->size, sizeof value));
}

}  // namespace kiln::c
