// See against_reference.hpp.
#include "tests/src/numerics/against_reference.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/numbers.hpp"

namespace kiln::testing {

std::vector<HostArray> special_inputs(DType dtype, std::size_t arity, std::int64_t elements) {
  constexpr std::int64_t kSpecial = 30;
  static_assert(kSpecialPairs == kSpecial * kSpecial);
  std::vector<HostArray> inputs;
  for (std::size_t i = 0; i < arity; ++i) {
    HostArray array = HostArray::contiguous(dtype, {elements});
    const std::vector<std::uint64_t> values =
        sample(dtype, static_cast<std::size_t>(elements), 7 + i);
    for (std::int64_t k = 0; k < elements; ++k) {
      const std::int64_t choices[] = {k / kSpecial, k % kSpecial, k * 7 % kSpecial};
      const std::int64_t at = k < kSpecialPairs ? choices[i] : k;
      set_bits(array, k, values[static_cast<std::size_t>(at)]);
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

std::vector<HostArray> reference_results(const Function& function,
                                         const std::vector<HostArray>& inputs,
                                         const std::vector<DType>& dtypes, Rounding rounding) {
  const fusion::Graph graph = fusion::parse(function.expression());
  std::vector<fusion::ArgumentType> types;
  for (const HostArray& input : inputs) types.push_back({input.dtype, false, false});
  std::vector<DType> stored;
  for (const DType dtype : dtypes) stored.push_back(is_floating(dtype) ? DType::f64 : dtype);
  const fusion::TypedGraph typed = fusion::infer(graph, types, stored, rounding, function.name());
  std::vector<fusion::ReferenceOperand> arguments;
  for (const HostArray& input : inputs) {
    arguments.push_back(
        {const_cast<std::byte*>(input.bytes.data()), input.dtype, input.strides, 0});
  }
  std::vector<HostArray> outputs;
  std::vector<fusion::ReferenceOperand> results;
  for (const DType dtype : stored) outputs.push_back(HostArray::contiguous(dtype, inputs[0].shape));
  for (HostArray& output : outputs)
    results.push_back({output.bytes.data(), output.dtype, output.strides, 0});
  fusion::evaluate(typed, inputs[0].shape, arguments, results);
  return outputs;
}

namespace {

// The sign of a NaN is nobody's promise.
bool is_sign_of_nan(const fusion::OpInfo& op, const std::vector<HostArray>& inputs,
                    std::int64_t i) {
  return op.op == fusion::Op::copysign &&
         std::isnan(fusion::decode(get_bits(inputs[1], i), inputs[1].dtype));
}

}  // namespace

void expect_results(const fusion::OpInfo& op, const std::vector<HostArray>& inputs,
                    const HostArray& got, const HostArray& exact, std::int64_t first,
                    Accuracy accuracy, Device device) {
  const DType dtype = got.dtype;
  double bound = 0;
  if (is_floating(dtype)) bound = *fusion::error_bound(op, dtype, accuracy, device.type);
  // What is expected has been rounded itself: to f64.
  bound = std::max(0.5, dtype == DType::f64 ? bound + 0.5 : bound);
  int reported = 0;
  for (std::int64_t i = first; i < got.size() && reported < 3; ++i) {
    const std::uint64_t result = get_bits(got, i);
    const std::uint64_t wanted = get_bits(exact, i);
    bool right = result == wanted;
    double error = 0;
    if (is_floating(dtype)) {
      std::array<long double, 3> operands{};
      for (std::size_t k = 0; k < inputs.size(); ++k)
        operands[k] = fusion::decode(get_bits(inputs[k], i), inputs[k].dtype);
      error = fusion::counted_error(op.op, fusion::decode(result, dtype),
                                    fusion::decode(wanted, DType::f64), operands, dtype);
      right = error <= bound || is_sign_of_nan(op, inputs, i);
    }
    if (right) continue;
    ++reported;
    std::string values;
    for (const HostArray& input : inputs) {
      values += fmt::format(" {:#x} ({})", get_bits(input, i),
                            fusion::decode(get_bits(input, i), input.dtype));
    }
    ADD_FAILURE() << op.name << " of " << name(inputs[0].dtype) << values << " on "
                  << to_string(device) << ": got "
                  << fmt::format("{:#x} ({})", result, fusion::decode(result, dtype))
                  << ", expected "
                  << fusion::decode(wanted, is_floating(dtype) ? DType::f64 : dtype)
                  << fmt::format(" ({} ULP, bound {})", error, bound);
  }
}

}  // namespace kiln::testing
