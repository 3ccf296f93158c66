// Any bytes as a manifest: every line is an entry or a problem, and what is written for an entry is
// read as the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "files/manifest.hpp"

using namespace kiln;
using namespace kiln::files;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Manifest manifest = parse_manifest({reinterpret_cast<const char*>(data), size});
  for (const ManifestProblem& problem : manifest.problems) {
    if (problem.line == 0 || problem.message.empty()) std::abort();
  }
  for (const ManifestLine& entry : manifest.lines) {
    const std::string line = manifest_line(entry);
    if (line.find('\n') != line.npos) std::abort();
    const Manifest again = parse_manifest(line);
    if (!again.problems.empty() || again.lines.size() != 1) std::abort();
    if (manifest_line(again.lines[0]) != line) std::abort();
  }
  return 0;
}
