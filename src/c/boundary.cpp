// The last error of each thread. See boundary.hpp.
#include "c/boundary.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <optional>
#include <string_view>

#include "kiln/error.hpp"

namespace kiln::c {
namespace {

struct LastError {
  std::string message;
  kiln_error error{KILN_OK, 0, 0, 0, ""};
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

kiln_status status_of(Code code) {
  switch (code) {
    case Code::invalid_argument: return KILN_INVALID_ARGUMENT;
    case Code::unsupported: return KILN_UNSUPPORTED;
    case Code::not_found: return KILN_NOT_FOUND;
    case Code::compile_failed: return KILN_COMPILE_FAILED;
    case Code::would_compile: return KILN_WOULD_COMPILE;
    case Code::device: return KILN_DEVICE;
    case Code::io: return KILN_IO;
    case Code::internal: return KILN_INTERNAL;
  }
  return KILN_INTERNAL;
}

/// A message that cannot be copied for want of memory is replaced by one that needs none.
kiln_status keep(kiln_status code, std::string_view message, std::optional<int> driver = {}) {
  LastError& last = last_error();
  last.error = {code, driver ? 1 : 0, driver.value_or(0), 0, ""};
  try {
    last.message = message;
    last.error.message = last.message.c_str();
  } catch (const std::exception&) {
    last.error.message = "out of memory, also for the message";
  }
  return code;
}

kiln_status keep_no_memory() {
  last_error().error = {KILN_NO_MEMORY, 0, 0, 0, "out of memory"};
  return KILN_NO_MEMORY;
}

/// A callback that returns what a function of kiln gave it leaves that error as it is.
kiln_status keep_callback(kiln_status status) {
  if (last_error().error.code == status) return status;
  try {
    return keep(KILN_CALLBACK, fmt::format("a function of the caller returned status {}", status));
  } catch (const std::exception&) {
    return keep_no_memory();
  }
}

}  // namespace

kiln_status keep_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(status_of(error.code()), error.what(), error.driver_code());
  } catch (const CallbackFailure& failure) {
    return keep_callback(failure.status);
  } catch (const std::bad_alloc&) {
    return keep_no_memory();
  } catch (const std::exception& error) {
    return keep(KILN_INTERNAL, error.what());
  } catch (...) {
    return keep(KILN_INTERNAL, "an exception of an unknown type");
  }
}

void fail_null(const char* function, const char* argument) {
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: expected a pointer, got NULL", function, argument));
}

void fail_reserved(const char* function, const char* argument) {
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: reserved: expected 0; use KILN_INIT", function, argument));
}

void fail_size(const char* function, const char* argument, const std::string& problem) {
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: the structure's size {}", function, argument, problem));
}

}  // namespace kiln::c

const kiln_error* kiln_last_error(void) { return &kiln::c::last_error().error; }

const char* kiln_status_name(kiln_status status) {
  switch (status) {
    case KILN_OK: return "ok";
    case KILN_INVALID_ARGUMENT: return "invalid_argument";
    case KILN_UNSUPPORTED: return "unsupported";
    case KILN_NOT_FOUND: return "not_found";
    case KILN_COMPILE_FAILED: return "compile_failed";
    case KILN_WOULD_COMPILE: return "would_compile";
    case KILN_DEVICE: return "device";
    case KILN_IO: return "io";
    case KILN_INTERNAL: return "internal";
    case KILN_NO_MEMORY: return "no_memory";
    case KILN_CALLBACK: return "callback";
    default: return "unknown";
  }
}
