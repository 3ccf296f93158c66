// What a function that does not throw returns in place of an exception.
#pragma once

#include <exception>
#include <optional>

#include "kiln/error.hpp"

namespace kiln {

/// Calls `body`; what it throws as an Error, any other exception as one of Code::internal.
template <class Body>
std::optional<Error> caught_error(const Body& body) noexcept {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Code::internal, error.what());
  } catch (...) {
    return Error(Code::internal, "a callback threw what is no std::exception");
  }
}

}  // namespace kiln
