// Any bytes as an expression: refused with an Error, or what the printer makes of it is read as the
// same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  kiln::fusion::Graph graph;
  try {
    graph = kiln::fusion::parse(text);
  } catch (const kiln::Error&) {
    return 0;
  }
  // An Error from here on is a bug: it ends the run.
  const std::string printed = kiln::fusion::to_text(graph);
  const kiln::fusion::Graph again = kiln::fusion::parse(printed);
  if (kiln::fusion::to_text(again) != printed) std::abort();
  if (again.arguments() != graph.arguments()) std::abort();
  if (again.output_names() != graph.output_names()) std::abort();
  return 0;
}
