// What a call that must fail says, and its code.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kiln/error.hpp"

namespace kiln::testing {

/// The message of the Error with that code that `call` throws, or "no error".
template <class F>
std::string message_of(const F& call, Code code = Code::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

/// The code of the Error that `call` throws, and its message.
template <class F>
Code code_of(const F& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return Code::internal;
}

}  // namespace kiln::testing
