// What a person gets to see of a failed compile, and what KILN_DUMP keeps of every compile.
#pragma once

#include <string>
#include <string_view>

#include "jit/service/compile.hpp"

namespace kiln::jit {

/// The message of the Error: function, expression, module, target, toolchain, `what` in a line, the
/// line of the source that the log's first error points at, and the last 60 lines of the log and of
/// what the worker printed.
std::string describe_failure(const CompileRequest& request, const Toolchain& toolchain,
                             std::string_view what, std::string_view log, std::string_view output);

/// The number of the source line that the first error of a compiler's log points at, or 0.
int first_error_line(std::string_view log);

/// Whether the log has an error at a line of the source, so that the same source is refused again.
/// What compilers call a fatal error is none: they say that too when a file cannot be written or a
/// process of theirs was killed.
bool is_verdict(std::string_view log);

/// Writes source, log, code, disassembly (each where there is one) and the command that repeats the
/// compile by hand to `directory`, under the entry's and the target's name. Failing is logged once.
void dump_compile(const std::string& directory, const std::string& worker,
                  const CompileRequest& request, const Toolchain& toolchain, std::string_view log,
                  std::string_view code, std::string_view isa);

}  // namespace kiln::jit
