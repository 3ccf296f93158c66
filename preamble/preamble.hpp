// The device code that every kernel starts with, as one text without includes: valid under hiprtc,
// NVRTC and a host compiler. Embedded at build time from the .h files beside this one.
#pragma once

#include <string_view>

namespace kiln::preamble {

std::string_view text();

}  // namespace kiln::preamble
