// Small work on text that several modules need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::base {

/// `text` at every `separator`, without empty parts.
std::vector<std::string> split(std::string_view text, char separator);

/// The last `count` lines of `text`, with a remark in front if there were more.
std::string last_lines(std::string_view text, int count);

}  // namespace kiln::base
