// What a copy is made of: a block of bytes, or a call of a function. Shared by kiln::copy and the
// recorder.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "kiln/copy.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// The number of bytes if `to` gets exactly the bytes of `from` in their order: equal dtypes,
/// shapes and strides without gaps. Nothing if it takes a kernel. Throws Error(invalid_argument),
/// in the name of `function`, if the two are such blocks and overlap, or are not of `device`.
std::optional<std::size_t> block_bytes(const Copy& copy, Device device, std::string_view function);

/// The call that copies: a function of one argument, and the views with which to call it.
struct CopyCall {
  const Function& function;
  Copy views;
};
CopyCall copy_call(const Copy& copy);

}  // namespace kiln
