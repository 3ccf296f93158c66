// What `kiln bench` measures: a table of functions with the dtypes and the forms of their operands.
// How they are measured is in bench.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln::tool {

/// How an array lies in the rows x columns of a case; of a matrix-vector product, whose rows are
/// taken by groups: the weights, one number for each group, the vectors, and what they give.
enum class Form : std::uint8_t {
  matrix,
  row,
  one_row,
  column,
  transposed,
  padded,
  weights,
  of_groups,
  vectors,
  products
};

constexpr std::int64_t kBenchGroup = 64;  // weights that share a scale and a bias

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
  std::int64_t rows = 0;        ///< if fixed; then timed in a graph beside a kernel that only reads
  std::int64_t vectors = 1;     ///< of a matrix-vector product
};

/// The cases of those names, or all. Reductions are families, whose names may go on with a number
/// of columns and a dtype: rmsnorm_131072_f16; products have a dtype, rows and a number of vectors:
/// matvec_i8_14336_4. Throws UsageError.
std::vector<BenchCase> bench_cases(const std::vector<std::string>& names);

/// For `kiln bench --help`.
std::string bench_case_names();

}  // namespace kiln::tool
