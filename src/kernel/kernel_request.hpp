// A kernel's text for a target: what is named, built and loaded.
#pragma once

#include <string>

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
  bool alone = false;  ///< shares no translation unit: `text` may define names of its own
};

}  // namespace kiln
