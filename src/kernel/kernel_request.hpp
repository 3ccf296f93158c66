// A kernel's text for a target: what is named, built and loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"

namespace kiln {

/// `text` has fusion::kEntryMarker for the entry's name and no preamble.
struct KernelRequest {
  std::string function;
  std::string expression;
  std::string signature;  ///< dtypes and layout, for people
  std::string text;
  std::string target;
  Options options;
  bool alone = false;          ///< shares no translation unit: `text` may define names of its own
  bool any_toolchain = false;  ///< one compiler's code is as good as another's: no part of the key
  /// Of fused functions, whose text names arguments and outputs by position: the form of kernel,
  /// which its name begins with, and what they are called. Not in the key.
  std::string form{};
  std::vector<std::string> arguments{};
  std::vector<std::string> outputs{};
};

/// The text, or a complete source with it, for people.
std::string readable_text(const KernelRequest& request, std::string_view source);

}  // namespace kiln
