// What `explain` expects of all kernels of a program together, for a sweep to compare with what was
// measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/program.hpp"
#include "kiln/specification.hpp"

namespace kiln::tool {

struct Forecast {
  double fraction_of_copy = 0;       ///< of what the program has to move at least
  bool bound_by_memory = true;       ///< and not by arithmetic
  std::vector<std::string> reasons;  ///< of each kernel, how it runs and why
};

/// Of such a run of the program of `function`, of which `info` is known. Compiles nothing.
Forecast forecast(const Function& function, const Specification& specification,
                  const ProgramInfo& info, std::string_view target);

}  // namespace kiln::tool
