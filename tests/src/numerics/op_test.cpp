// Every op of the table, compiled and run on a device, against the reference interpreter in f64 and
// integer arithmetic. Ops share kernels, one per dtype and group.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "tests/src/numerics/against_reference.hpp"
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
    const std::vector<HostArray> exact =
        testing::reference_results(function, inputs, dtypes, Rounding::once);
    for (std::size_t i = 0; i < group.size(); ++i)
      testing::expect_results(*group[i], inputs, outputs[i], exact[i], 0, Accuracy::storage,
                              device);
  }
};

TEST_P(OpOnDevice, AgreesWithTheReference) {
  for (const DType dtype : kComputed) {
    for (const int arity : {1, 2, 3})
      expect_ops(dtype, arity,
                 testing::special_inputs(dtype, static_cast<std::size_t>(arity), kElements));
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
    const std::vector<HostArray> inputs = testing::special_inputs(from, 1, kElements);
    testing::run_on(device, function, inputs, outputs);
    const std::vector<HostArray> exact =
        testing::reference_results(function, inputs, dtypes, Rounding::once);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      testing::expect_results(fusion::info(Op::cast), inputs, outputs[i], exact[i], 0,
                              Accuracy::storage, device);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpOnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, OpOnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
