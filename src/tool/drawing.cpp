#include "tool/drawing.hpp"

#include <fmt/format.h>

#include <fstream>

#include "base/temporary.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/find.hpp"
#include "kiln/error.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    print("{}", text);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw Error(Code::io, fmt::format("{}: cannot be written", path));
}

// Graphviz draws it.
std::string svg_text(const std::string& dot) {
  const auto program = jit::find_program("dot");
  if (!program) {
    throw Error(Code::not_found,
                "--svg needs the program dot; install it (Debian, Ubuntu: graphviz), or use --dot, "
                "which needs no program");
  }
  const base::TemporaryDirectory directory("kiln-graph");
  const base::CommandResult result =
      jit::run_scrubbed({*program, "-Tsvg", directory.write("graph.dot", dot)}, directory.path());
  if (!result.succeeded()) {
    throw Error(Code::io, fmt::format("{} {}: {}", *program, result.ending, result.errors));
  }
  return result.output;
}

}  // namespace

std::string dot_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result + '"';
}

bool draw_graph(const std::string& dot, const std::string& dot_file, const std::string& svg_file) {
  if (!dot_file.empty()) write_file(dot_file, dot);
  if (!svg_file.empty()) write_file(svg_file, svg_text(dot));
  return dot_file == "-" || svg_file == "-";
}

}  // namespace kiln::tool
