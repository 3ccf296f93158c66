#include "tool/bench_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "tool/commands.hpp"

namespace kiln::tool {
namespace {

// What tells whether layouts and maths are fast: plain vectors, a heavy chain, a broadcast row, a
// transposed operand, padded rows, packed weights with a scale and a bias for each group, and
// results of another width than the operands.
const std::vector<BenchCase>& elementwise_cases() {
  using enum DType;
  static const std::vector<BenchCase> cases = {
      {"copy", "x", {{"x", f32}}, f32},
      {"silu_mul_bf16", "silu(x) * y", {{"x", bf16}, {"y", bf16}}, bf16},
      {"silu_mul_f32", "silu(x) * y", {{"x", f32}, {"y", f32}}, f32},
      {"gelu_tanh_f16", "gelu_tanh(x)", {{"x", f16}}, f16},
      {"chain12_f32",
       "t = tanh(x * y + 0.5) * log1p(exp(-abs(x - y))); 0.5 * maximum(t, x) + y",
       {{"x", f32}, {"y", f32}},
       f32},
      {"bias_gelu_residual_bf16",
       "gelu(x + bias) + residual",
       {{"x", bf16}, {"bias", bf16, Form::row}, {"residual", bf16}},
       bf16},
      {"transpose_add_f32", "x + y", {{"x", f32}, {"y", f32, Form::transposed}}, f32},
      {"row_strided_add_f32",
       "relu(x) + y",
       {{"x", f32, Form::padded}, {"y", f32, Form::padded}},
       f32},
      {"dequant_u4_bf16",
       "q * scale + bias",
       {{"q", u4}, {"scale", bf16, Form::column}, {"bias", bf16, Form::column}},
       bf16,
       kBenchGroup},
      {"cast_f32_bf16", "bf16(x)", {{"x", f32}}, bf16},
  };
  return cases;
}

// A reduction that is measured for rows of any length in any float dtype. `x` is the matrix, every
// other argument a row of weights.
struct Family {
  std::string_view name;
  std::string_view expression;
  std::vector<std::string_view> weights;
  Form result = Form::matrix;
  std::int64_t columns = 4096;
  DType dtype = DType::bf16;
};

const std::vector<Family>& families() {
  using enum DType;
  static const std::vector<Family> list = {
      {"rmsnorm", "x * rsqrt(mean(x * x, -1) + 1e-5) * w", {"w"}},
      {"layer_norm", "layer_norm(x, w, b, 1e-5)", {"w", "b"}},
      {"softmax", "softmax(x * 0.125, -1)", {}},
      {"logsumexp", "logsumexp(x, -1)", {}, Form::column},
      {"row_sum", "sum(x, -1)", {}, Form::column, 0, f32},  // one row of everything
      {"column_sum", "sum(x, 0)", {}, Form::one_row, 4096, f32},
  };
  return list;
}

// What is measured of them where no case is named.
constexpr std::string_view kUsual[] = {
    "rmsnorm_4096_bf16",   "layer_norm_4096_bf16", "softmax_4096_bf16",
    "logsumexp_4096_bf16", "row_sum_f32",          "column_sum_f32",
    "matvec_u4_4096",      "matvec_u4_14336",      "matvec_u4_131072"};

BenchCase case_of(const Family& family, std::string name, std::int64_t columns, DType dtype) {
  BenchCase item;
  item.name = std::move(name);
  item.expression = family.expression;
  item.inputs = {{"x", dtype}};
  for (const std::string_view weight : family.weights) {
    item.inputs.push_back({std::string(weight), dtype, Form::row});
  }
  item.output = family.result == Form::matrix ? dtype : DType::f32;
  item.columns = columns;
  item.result = family.result;
  item.sums = family.expression.starts_with("sum(x");
  return item;
}

// NAME, NAME_COLUMNS, NAME_DTYPE or NAME_COLUMNS_DTYPE.
std::optional<BenchCase> of_family(const Family& family, const std::string& wanted) {
  if (!wanted.starts_with(family.name)) return std::nullopt;
  std::int64_t columns = family.columns;
  DType dtype = family.dtype;
  std::string_view rest = std::string_view(wanted).substr(family.name.size());
  if (rest.size() > 1 && rest[0] == '_' && rest[1] >= '1' && rest[1] <= '9') {
    const auto end = std::from_chars(rest.data() + 1, rest.data() + rest.size(), columns);
    if (end.ec != std::errc()) return std::nullopt;
    rest.remove_prefix(static_cast<std::size_t>(end.ptr - rest.data()));
  }
  for (const DType floating : {DType::f16, DType::bf16, DType::f32}) {
    if (rest == fmt::format("_{}", name(floating))) {
      dtype = floating;
      rest = {};
    }
  }
  if (!rest.empty()) return std::nullopt;
  return case_of(family, wanted, columns, dtype);
}

// matvec_DTYPE_ROWS or matvec_DTYPE_ROWS_VECTORS: rows of 4096 weights with a scale and a bias for
// each group of them.
std::optional<BenchCase> matrix_vector(const std::string& wanted) {
  using enum DType;
  constexpr std::string_view kPrefix = "matvec_";
  if (!wanted.starts_with(kPrefix)) return std::nullopt;
  std::string_view rest = std::string_view(wanted).substr(kPrefix.size());
  const std::size_t end = rest.find('_');
  const std::optional<DType> weights = parse_dtype(rest.substr(0, end));
  if (!weights || bits(*weights) > 16 || end == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(end + 1);
  const auto number = [&](std::int64_t& value) {
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest.data()));
    return parsed.ec == std::errc() && value > 0;
  };
  BenchCase item{wanted,
                 is_floating(*weights) ? "sum(bf16(q) * scale * x, -1, -2)"
                                       : "sum((q * scale + bias) * x, -1, -2)",
                 {{"q", *weights, Form::weights}, {"scale", bf16, Form::of_groups}},
                 bf16};
  if (!is_floating(*weights)) item.inputs.push_back({"bias", bf16, Form::of_groups});
  item.inputs.push_back({"x", bf16, Form::vectors});
  item.result = Form::products;
  if (!number(item.rows)) return std::nullopt;
  if (rest.starts_with('_')) {
    rest.remove_prefix(1);
    if (!number(item.vectors)) return std::nullopt;
  }
  return rest.empty() ? std::optional(item) : std::nullopt;
}

BenchCase find_case(const std::string& wanted) {
  const auto found = std::ranges::find(elementwise_cases(), wanted, &BenchCase::name);
  if (found != elementwise_cases().end()) return *found;
  for (const Family& family : families()) {
    if (auto item = of_family(family, wanted)) return *std::move(item);
  }
  if (auto item = matrix_vector(wanted)) return *std::move(item);
  throw UsageError(
      fmt::format("bench: there is no case '{}'; the cases are {}", wanted, bench_case_names()));
}

}  // namespace

std::vector<BenchCase> bench_cases(const std::vector<std::string>& names) {
  std::vector<BenchCase> cases;
  for (const std::string& wanted : names) cases.push_back(find_case(wanted));
  if (!names.empty()) return cases;
  cases = elementwise_cases();
  for (const std::string_view usual : kUsual) cases.push_back(find_case(std::string(usual)));
  return cases;
}

std::string bench_case_names() {
  std::vector<std::string> names;
  for (const BenchCase& item : elementwise_cases()) names.push_back(item.name);
  for (const std::string_view usual : kUsual) names.emplace_back(usual);
  return fmt::format(
      "{}; the reductions also with other row lengths, in f16, bf16 or f32, and "
      "matvec_DTYPE_ROWS_VECTORS with other weights, rows and numbers of vectors",
      fmt::join(names, ", "));
}

}  // namespace kiln::tool
