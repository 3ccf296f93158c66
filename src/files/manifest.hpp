// Manifests: the kernels that a process needs, one JSON object a line, so that they can be compiled
// before it runs and on another machine. Reading and writing text only; what becomes of a line is
// in tool/manifest.cpp, and who writes one in call/manifest_log.cpp.
//
//   {"name": "swiglu", "expression": "silu(gate) * up",
//    "types": {"gate": "bf16[64,172]", "up": "bf16[64,172]@1,64"},
//    "options": {"round": "once", "accuracy": "storage"}, "outputs": ["bf16[64,172]"]}
//   {"name": "halves", "program": "x[..., 0::2] + sum(x, -1)", "types": {"x": "f32[64,172]"}}
//   {"name": "scale", "kernel": "extern \"C\" __global__ void scale(const float* x, float* y, ...",
//    "parameters": ["reads f32", "writes f32", "f32"]}
//
// The line of a Function has its `expression`, that of a Program its `program`, that of a kernel of
// the user's own (kiln::kernel) its source as `kernel` and its `parameters`, but no types and
// outputs:
//   parameter := ["reads " | "writes " | "reads and writes "] DTYPE     a pointer, or a number
// `types` gives the arguments in their order:
//   type    := array | DTYPE | "weak " DTYPE       the last two are numbers, a weak one takes the
//                                                  dtype of its partner
//   array   := DTYPE "[" SIZE,... "]" ["@" STRIDE,...] ["+" BYTES] ["&" MEMORY "," ELEMENT]
//                                                  strides in elements; the address is so many
//                                                  bytes past a multiple of 16; arrays of one
//                                                  MEMORY, a number from 1 on, begin at those
//                                                  elements of it
// `options` and `outputs` may be left out. `outputs` has for each output its dtype, alone or as an
// array: where it is stored, if not in C order and aligned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/kernel.hpp"
#include "kiln/options.hpp"
#include "kiln/specification.hpp"

namespace kiln::files {

/// What a line is of.
enum class ManifestKind : std::uint8_t { function, program, kernel };

struct ManifestLine {
  ManifestKind kind = ManifestKind::function;
  std::string name;
  std::string text;  ///< the text form, or a kernel's source
  Specification specification;
  std::vector<KernelParameter> parameters;  ///< of a kernel
  Options options;
  std::size_t number = 0;  ///< counted from 1
};

struct ManifestProblem {
  std::size_t line = 0;
  std::string message;
};

struct Manifest {
  std::vector<ManifestLine> lines;
  std::vector<ManifestProblem> problems;  ///< of other lines, which do not hurt these
};

/// Reads lines; empty ones are skipped. Whatever the bytes are, it does not throw for them.
Manifest parse_manifest(std::string_view text);

/// The text of a line, without a newline. parse_manifest() gives the same line for it.
std::string manifest_line(const ManifestLine& line);

/// Reads a `type` of the grammar at the top of this file, of the argument `name`. Throws
/// Error(invalid_argument) that says what was expected.
ArgumentSpec parse_type(std::string_view name, std::string_view text);
std::string type_text(const ArgumentSpec& argument);

}  // namespace kiln::files
