// What `kiln bench` measures: a table of functions with the dtypes and the forms of their operands.
// How they are measured is in bench.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln::tool {

/// How an array lies in the rows x columns of a case.
enum class Form : std::uint8_t { matrix, row, one_row, column, transposed, padded };

struct BenchOperand {
  std::string name;
  DType dtype;
  Form form = Form::matrix;
};

struct BenchCase {
  std::string name;
  std::string expression;
  std::vector<BenchOperand> inputs;
  DType output;
  std::int64_t columns = 4096;  ///< 0: all elements are one row
  Form result = Form::matrix;   ///< or one row or column, where the other axis is reduced
  bool sums = false;            ///< of the first input, so that they can be checked as a whole
};

/// The cases of those names, or all. Reductions are families, whose names may go on with a number
/// of columns and a dtype: rmsnorm_131072_f16. Throws UsageError.
std::vector<BenchCase> bench_cases(const std::vector<std::string>& names);

/// For `kiln bench --help`.
std::string bench_case_names();

}  // namespace kiln::tool
