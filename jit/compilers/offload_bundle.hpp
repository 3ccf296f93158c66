// Clang's offload bundles: some releases of hiprtc wrap the code object in one.
#pragma once

#include <string>
#include <string_view>

namespace kiln::jit {

/// The code object for `target` in `code` if that is a bundle, else `code` itself. Throws
/// Error(internal) for a bundle that holds no code for it or lies about its sizes.
std::string unbundle(std::string code, std::string_view target);

}  // namespace kiln::jit
