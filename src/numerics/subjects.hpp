// The functions whose results are measured: every op that gives a float, and every library function
// of one argument.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fusion/graph/op.hpp"

namespace kiln::numerics {

struct Subject {
  std::string name;
  std::optional<fusion::Op> op;  ///< none: a composition of ops
  int arity = 1;

  /// The call on x, y, z in the text form.
  std::string text() const;
  /// Compositions are for real numbers.
  bool takes(DType dtype) const;
};

/// In the order of the op table, then of the compositions.
const std::vector<Subject>& all_subjects();

}  // namespace kiln::numerics
