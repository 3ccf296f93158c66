// Special values on real kernels of every float dtype, under storage and strict: what comes out is
// compared with what is written in the tables of them, and every pair of them with the reference.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/text/text.hpp"
#include "tests/src/numerics/against_reference.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"
#include "tests/support/special_rows.hpp"

namespace kiln {
namespace {

using fusion::OpInfo;
using testing::HostArray;
using testing::SpecialRow;

constexpr std::size_t kCallsOfKernel = 12;

const OpInfo& op_of(std::string_view call) {
  return fusion::info(*fusion::find_op(call.substr(0, call.find('('))));
}

// NaN comes out of every op that gives a float, whichever operand it is, but for those whose rows
// say something else.
std::vector<SpecialRow> nan_rows() {
  constexpr std::string_view kOperands[] = {"(x)", "(x, y)", "(x, y, z)"};
  static const std::set<std::string_view> kOthers = {"imag", "fmax", "fmin", "copysign"};
  static std::set<std::string> names;  // of the rows
  std::vector<SpecialRow> rows;
  for (const OpInfo& op : fusion::all_ops()) {
    using enum fusion::Rule;
    const bool arithmetic = op.rule == same || op.rule == integral || op.rule == floating;
    if (!arithmetic || kOthers.contains(op.name)) continue;
    const std::string& call =
        *names.insert(std::string(op.name) + std::string(kOperands[op.arity - 1])).first;
    for (int position = 0; position < op.arity; ++position) {
      std::vector<testing::Special> operands(static_cast<std::size_t>(op.arity), 2.0);
      operands[static_cast<std::size_t>(position)] = std::nan("");
      rows.push_back({call, operands, std::nan("")});
    }
  }
  return rows;
}

class SpecialValues : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    if (!testing::has_device(device().type)) GTEST_SKIP() << jit::why_absent(device().type);
  }
  static Device device() { return {std::get<0>(GetParam()), 0}; }
  static DType dtype() { return std::get<1>(GetParam()); }

  /// The rows; with pairs also every special value of an operand beside every one of the others,
  /// against the reference.
  static void expect(const std::vector<SpecialRow>& rows, Accuracy accuracy, bool pairs) {
    std::map<std::string_view, std::vector<const SpecialRow*>> by_call;
    for (const SpecialRow& row : rows) by_call[row.call].push_back(&row);
    for (std::size_t arity = 1; arity <= 3; ++arity) {
      std::vector<std::string_view> calls;
      for (const auto& [call, own] : by_call) {
        if (own.front()->operands.size() == arity) calls.push_back(call);
      }
      for (std::size_t from = 0; from < calls.size(); from += kCallsOfKernel) {
        const auto count = std::min(kCallsOfKernel, calls.size() - from);
        run(std::span(calls).subspan(from, count), by_call, arity, accuracy, pairs);
      }
    }
  }

 private:
  // Calls of one kernel: each on its own rows, element by element, the others' are ignored.
  static void run(std::span<const std::string_view> calls,
                  std::map<std::string_view, std::vector<const SpecialRow*>>& by_call,
                  std::size_t arity, Accuracy accuracy, bool pairs) {
    std::size_t size = 0;
    for (const std::string_view call : calls) size = std::max(size, by_call[call].size());
    const auto rows = static_cast<std::int64_t>(size * calls.size());
    const std::int64_t count = rows + (pairs ? testing::kSpecialPairs : 0);
    std::vector<HostArray> inputs(arity, HostArray::contiguous(dtype(), {count}));
    if (pairs) {
      const auto special = testing::special_inputs(dtype(), arity, testing::kSpecialPairs);
      for (std::size_t k = 0; k < arity; ++k) {
        for (std::int64_t i = rows; i < count; ++i)
          testing::set_bits(inputs[k], i, testing::get_bits(special[k], i - rows));
      }
    }
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (std::size_t i = 0; i < by_call[calls[c]].size(); ++i) {
        for (std::size_t k = 0; k < arity; ++k) {
          const double operand = by_call[calls[c]][i]->operands[k].in(dtype());
          testing::set_bits(inputs[k], static_cast<std::int64_t>(c * size + i),
                            fusion::encode(operand, dtype()));
        }
      }
    }
    const std::string text = fmt::format("{}", fmt::join(calls, ", "));
    const Function function = parse("special", text, {Rounding::once, accuracy});
    const std::vector<fusion::ArgumentType> types(arity, {dtype(), false, false});
    const fusion::TypedGraph typed =
        fusion::infer(fusion::parse(text), types, {}, Rounding::once, "special");
    std::vector<HostArray> outputs;
    for (const fusion::NodeId output : typed.outputs)
      outputs.push_back(HostArray::contiguous(typed.nodes[output].dtype, {count}));
    testing::run_on(device(), function, inputs, outputs);
    if (pairs) {
      std::vector<DType> dtypes;
      for (const HostArray& output : outputs) dtypes.push_back(output.dtype);
      const auto exact = testing::reference_results(function, inputs, dtypes, Rounding::once);
      for (std::size_t c = 0; c < calls.size(); ++c)
        testing::expect_results(op_of(calls[c]), inputs, outputs[c], exact[c], rows, accuracy,
                                device());
    }
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (std::size_t i = 0; i < by_call[calls[c]].size(); ++i) {
        judge(*by_call[calls[c]][i], outputs[c],
              testing::get_bits(outputs[c], static_cast<std::int64_t>(c * size + i)), accuracy);
      }
    }
  }

  static void judge(const SpecialRow& row, const HostArray& output, std::uint64_t bits,
                    Accuracy accuracy) {
    const double expected = row.expected.in(dtype());
    const double got = fusion::decode(bits, output.dtype);
    std::string operands;
    for (const testing::Special& operand : row.operands)
      operands += fmt::format(" {}", operand.in(dtype()));
    double error = got == expected ? 0 : 1;
    double bound = 0;
    if (is_floating(output.dtype)) {
      error = fusion::ulp_error(got, expected, output.dtype);
      bound = *fusion::error_bound(op_of(row.call), output.dtype, accuracy, device().type);
      bound = std::max(0.5, bound);
    }
    EXPECT_LE(error, bound) << row.call << " of" << operands << " in " << name(dtype()) << " is "
                            << got << ", not " << expected;
  }
};

TEST_P(SpecialValues, AreThoseOfTheTable) {
  testing::Share share(device().type, 3, dtype() == DType::bf16 ? 1 : 0);
  expect(testing::special_rows(), Accuracy::storage, true);
  if (share.next()) expect(testing::special_rows(), Accuracy::strict, true);
}

TEST_P(SpecialValues, NanComesOutOfEveryFunction) { expect(nan_rows(), Accuracy::storage, false); }

// Of the first operand, or of the only one; NVIDIA's conversions of narrow floats keep no payload.
TEST_P(SpecialValues, ANanKeepsItsPayloadThroughMaximumAndMinimum) {
  const bool narrow = bits(dtype()) == 16;
  if (narrow && device().type == DeviceType::cuda)
    GTEST_SKIP() << "NVIDIA's conversions of " << name(dtype()) << " keep no payload";
  const std::uint64_t nan = fusion::encode(std::nan(""), dtype());
  const std::uint64_t one = fusion::encode(1, dtype());
  const std::uint64_t firsts[] = {nan | 3, one, nan | 3};
  const std::uint64_t seconds[] = {nan | 5, nan | 5, one};
  const std::uint64_t expected[] = {nan | 3, nan | 5, nan | 3};
  std::vector<HostArray> inputs(2, HostArray::contiguous(dtype(), {3}));
  for (std::int64_t i = 0; i < 3; ++i) {
    testing::set_bits(inputs[0], i, firsts[i]);
    testing::set_bits(inputs[1], i, seconds[i]);
  }
  std::vector<HostArray> outputs(2, inputs[0]);
  testing::run_on(device(), parse("payload", "maximum(x, y), minimum(x, y)"), inputs, outputs);
  for (const HostArray& output : outputs) {
    for (std::int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(testing::get_bits(output, i), expected[i]) << name(dtype()) << ", " << i;
  }
}

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

INSTANTIATE_TEST_SUITE_P(Cpu, SpecialValues,
                         ::testing::Combine(::testing::Values(DeviceType::cpu),
                                            ::testing::ValuesIn(kFloats)),
                         testing::device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, SpecialValues,
                         ::testing::Combine(::testing::Values(DeviceType::hip, DeviceType::cuda),
                                            ::testing::ValuesIn(kFloats)),
                         testing::device_and_dtype_name);

TEST(SpecialRows, EveryOpOnFloatsHasOne) {
  std::set<fusion::Op> seen;
  for (const SpecialRow& row : testing::special_rows()) seen.insert(op_of(row.call).op);
  for (const OpInfo& op : fusion::all_ops()) {
    const bool is_call = op.arity > 0 && op.rule != fusion::Rule::convert;
    if (is_call && fusion::accepts(op, DType::f32)) {
      EXPECT_TRUE(seen.contains(op.op)) << op.name;
    }
  }
}

}  // namespace
}  // namespace kiln
