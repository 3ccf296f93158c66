// Graphs as pictures: text for Graphviz, and what it draws of it.
#pragma once

#include <string>
#include <string_view>

namespace kiln::tool {

/// A quoted string of the DOT language; line ends are kept.
std::string dot_string(std::string_view text);

/// Writes --dot and --svg files from a DOT text; "-" is standard output, empty is none. True if
/// standard output is taken. Throws Error(not_found) without the program dot for SVG, Error(io).
bool draw_graph(const std::string& dot, const std::string& dot_file, const std::string& svg_file);

}  // namespace kiln::tool
