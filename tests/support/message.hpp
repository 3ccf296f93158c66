// What a call that must fail says.
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

}  // namespace kiln::testing
