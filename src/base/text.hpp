// Small work on text that several modules need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::base {

/// Which parts of a text split() gives.
enum class Parts : std::uint8_t {
  all,        ///< empty ones too
  not_empty,  ///< those of one character or more
  trimmed,    ///< without the blanks around them, and only those of more than blanks
};

/// `text` split at every `separator`.
std::vector<std::string> split(std::string_view text, char separator,
                               Parts which = Parts::not_empty);

/// The last `count` lines of `text`, with a remark in front if there were more.
std::string last_lines(std::string_view text, int count);

}  // namespace kiln::base
