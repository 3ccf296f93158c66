// Every op of the table, compiled and run on a device, against the reference interpreter in f64 and
// integer arithmetic. Ops share kernels, one per dtype and group.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::Op;
using fusion::OpInfo;
using fusion::Rule;
using testing::HostArray;

constexpr std::int64_t kElements = 2048;

constexpr DType kComputed[] = {DType::boolean, DType::u8,  DType::u16, DType::u32, DType::u64,
                               DType::i8,      DType::i16, DType::i32, DType::i64, DType::f16,
                               DType::bf16,    DType::f32, DType::f64};

bool is_tried(const OpInfo& op, DType dtype) {
  return op.rule != Rule::convert && op.rule != Rule::component && fusion::accepts(op, dtype);
}

// A call of `op` on x, y, z in the text form.
std::string call_text(const OpInfo& op) {
  constexpr std::string_view kOperands[] = {"x", "x, y", "x, y, z"};
  return fmt::format("{}({})", op.name, kOperands[op.arity - 1]);
}

// The first elements pair every special value of one operand with every one of the others.
std::vector<HostArray> make_inputs(DType dtype, std::size_t arity) {
  constexpr std::int64_t kSpecial = 30;
  std::vector<HostArray> inputs;
  for (std::size_t i = 0; i < arity; ++i) {
    HostArray array = HostArray::contiguous(dtype, {kElements});
    const std::vector<std::uint64_t> values = testing::sample(dtype, kElements, 7 + i);
    for (std::int64_t k = 0; k < kElements; ++k) {
      const std::int64_t choices[] = {k / kSpecial, k % kSpecial, k * 7 % kSpecial};
      const std::int64_t at = k < kSpecial * kSpecial ? choices[i] : k;
      testing::set_bits(array, k, values[static_cast<std::size_t>(at)]);
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

// What the function gives exactly: floats unrounded in f64, everything else in its own dtype.
std::vector<HostArray> expected(const Function& function, const std::vector<HostArray>& inputs,
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

// The sign of a NaN is nobody's promise.
bool is_sign_of_nan(const OpInfo& op, const std::vector<HostArray>& inputs, std::int64_t i) {
  return op.op == Op::copysign &&
         std::isnan(fusion::decode(testing::get_bits(inputs[1], i), inputs[1].dtype));
}

void compare(const OpInfo& op, const std::vector<HostArray>& inputs, const HostArray& got,
             const HostArray& exact, Device device) {
  const DType dtype = got.dtype;
  double bound = 0;
  if (is_floating(dtype)) bound = *fusion::error_bound(op, dtype, Accuracy::storage, device.type);
  // What is expected has been rounded itself: to f64.
  bound = std::max(0.5, dtype == DType::f64 ? bound + 0.5 : bound);
  int reported = 0;
  for (std::int64_t i = 0; i < got.size() && reported < 3; ++i) {
    const std::uint64_t result = testing::get_bits(got, i);
    const std::uint64_t wanted = testing::get_bits(exact, i);
    bool right = result == wanted;
    double error = 0;
    if (is_floating(dtype)) {
      std::array<long double, 3> operands{};
      for (std::size_t k = 0; k < inputs.size(); ++k)
        operands[k] = fusion::decode(testing::get_bits(inputs[k], i), inputs[k].dtype);
      error = fusion::counted_error(op.op, fusion::decode(result, dtype),
                                    fusion::decode(wanted, DType::f64), operands, dtype);
      right = error <= bound || is_sign_of_nan(op, inputs, i);
    }
    if (right) continue;
    ++reported;
    std::string values;
    for (const HostArray& input : inputs) {
      values += fmt::format(" {:#x} ({})", testing::get_bits(input, i),
                            fusion::decode(testing::get_bits(input, i), input.dtype));
    }
    ADD_FAILURE() << op.name << " of " << name(inputs[0].dtype) << values << " on "
                  << to_string(device) << ": got "
                  << fmt::format("{:#x} ({})", result, fusion::decode(result, dtype))
                  << ", expected "
                  << fusion::decode(wanted, is_floating(dtype) ? DType::f64 : dtype)
                  << fmt::format(" ({} ULP, bound {})", error, bound);
  }
}

class OpOnDevice : public testing::OnDevice {
 protected:
  // The ops of that many operands on the inputs, several to a kernel.
  static void expect_ops(DType dtype, int arity, const std::vector<HostArray>& inputs) {
    testing::Share share(GetParam(), 16, static_cast<std::uint64_t>(dtype));
    std::vector<const OpInfo*> group;
    for (const OpInfo& op : fusion::all_ops()) {
      if (!share.next() || op.arity != arity || !is_tried(op, dtype)) continue;
      group.push_back(&op);
      if (group.size() < kOpsOfKernel) continue;
      expect_group(group, dtype, inputs);
      group.clear();
    }
    if (!group.empty()) expect_group(group, dtype, inputs);
  }

 private:
  static constexpr std::size_t kOpsOfKernel = 16;

  static void expect_group(const std::vector<const OpInfo*>& group, DType dtype,
                           const std::vector<HostArray>& inputs) {
    const Device device{GetParam(), 0};
    std::string text;
    for (const OpInfo* op : group) text += (text.empty() ? "" : ", ") + call_text(*op);
    const Function function = parse(fmt::format("ops_{}_{}", inputs.size(), name(dtype)), text);
    const std::vector<fusion::ArgumentType> types(inputs.size(), {dtype, false, false});
    const fusion::TypedGraph typed =
        fusion::infer(fusion::parse(text), types, {}, Rounding::once, "ops");
    std::vector<DType> dtypes;
    std::vector<HostArray> outputs;
    for (const fusion::NodeId output : typed.outputs) {
      dtypes.push_back(typed.nodes[output].dtype);
      outputs.push_back(HostArray::contiguous(dtypes.back(), inputs[0].shape));
    }
    testing::run_on(device, function, inputs, outputs);
    const std::vector<HostArray> exact = expected(function, inputs, dtypes, Rounding::once);
    for (std::size_t i = 0; i < group.size(); ++i)
      compare(*group[i], inputs, outputs[i], exact[i], device);
  }
};

TEST_P(OpOnDevice, AgreesWithTheReference) {
  for (const DType dtype : kComputed) {
    for (const int arity : {1, 2, 3})
      expect_ops(dtype, arity, make_inputs(dtype, static_cast<std::size_t>(arity)));
  }
}

TEST_P(OpOnDevice, AgreesWithTheReferenceForEverySmallInteger) {
  for (const DType dtype : {DType::u8, DType::i8, DType::u16, DType::i16}) {
    HostArray every = HostArray::contiguous(dtype, {std::int64_t{1} << bits(dtype)});
    for (std::int64_t i = 0; i < every.size(); ++i)
      testing::set_bits(every, i, static_cast<std::uint64_t>(i));
    expect_ops(dtype, 1, {every});
  }
}

TEST_P(OpOnDevice, CastsBetweenAllPairsOfDtypes) {
  const Device device{GetParam(), 0};
  testing::Share share(GetParam(), 5);
  for (const DType from : kComputed) {
    if (!share.next()) continue;
    std::string text;
    std::vector<HostArray> outputs;
    std::vector<DType> dtypes;
    for (const DType to : kComputed) {
      text += fmt::format("{}{}(x)", text.empty() ? "" : ", ", name(to));
      dtypes.push_back(to);
      outputs.push_back(HostArray::contiguous(to, {kElements}));
    }
    const Function function = parse(fmt::format("casts_{}", name(from)), text);
    const std::vector<HostArray> inputs = make_inputs(from, 1);
    testing::run_on(device, function, inputs, outputs);
    const std::vector<HostArray> exact = expected(function, inputs, dtypes, Rounding::once);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      compare(fusion::info(Op::cast), inputs, outputs[i], exact[i], device);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpOnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, OpOnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
