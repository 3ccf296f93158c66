// The version of kiln: KILN_VERSION and its parts are macros, for the preprocessor
// (kiln/version.h).
#pragma once

#include <string_view>

#include "kiln/version.h"  // IWYU pragma: export

#pragma GCC visibility push(default)

namespace kiln {

/// Of the library that this program runs with, such as "0.1.0"; KILN_VERSION_STRING is that of the
/// headers. Before 1.0 they fit only where major and minor are the same.
std::string_view version() noexcept;

}  // namespace kiln

#pragma GCC visibility pop
