// What a copy is made of: a block of bytes, or a call of a function. Shared by kiln::copy and the
// recorder.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "kiln/function.hpp"

namespace kiln {

/// The number of bytes if `dst` gets exactly the bytes of `src` in their order: equal dtypes,
/// shapes and strides without gaps. Nothing if it takes a kernel. Throws Error(invalid_argument),
/// in the name of `function`, if the two are such blocks and overlap, or are not of `device`.
std::optional<std::size_t> block_bytes(const View& src, const View& dst, Device device,
                                       std::string_view function);

/// The call that copies: a function of one argument, and the views with which to call it.
struct CopyCall {
  const Function& function;
  View src;
  View dst;
};
CopyCall copy_call(const View& src, const View& dst);

}  // namespace kiln
