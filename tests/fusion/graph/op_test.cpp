// The op table: every op is found by its name, and what each row says fits together.
// Bounds are found for every op, and an error is counted as they count it.
#include "fusion/graph/op.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

bool is_written_by_users(const OpInfo& op) {
  return op.rule != Rule::leaf && op.rule != Rule::index && op.rule != Rule::convert;
}

TEST(OpTable, EveryOpThatUsersWriteIsFoundByItsName) {
  for (const OpInfo& op : all_ops()) {
    const std::optional<Op> found = find_op(op.name);
    EXPECT_EQ(found.has_value(), is_written_by_users(op)) << op.name;
    if (found) {
      EXPECT_EQ(*found, op.op) << op.name;
    }
    EXPECT_EQ(&info(op.op), &op) << op.name;
  }
}

TEST(OpTable, UnknownAndReservedNamesAreNotFound) {
  for (const char* name : {"", "ex", "expp", "Exp", "input", "scalar", "constant", "cast",
                           "promote", "bitcast", "relu"}) {
    EXPECT_FALSE(find_op(name).has_value()) << name;
  }
}

TEST(OpTable, NamesAreUniqueIdentifiers) {
  std::set<std::string_view> names;
  for (const OpInfo& op : all_ops()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_FALSE(op.name.empty());
    for (const char c : op.name)
      EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') << op.name;
  }
}

TEST(OpTable, AnOpAcceptsTheDtypesThatInferenceDoesNotRefuse) {
  for (const OpInfo& op : all_ops()) {
    if (!is_written_by_users(op)) continue;
    for (const DTypeInfo& entry : kDTypes) {
      Graph graph;
      const NodeId x = graph.argument("x");
      const std::vector<NodeId> operands(static_cast<std::size_t>(op.arity), x);
      graph.add_output(graph.apply(op.op, operands));
      const ArgumentType type{entry.dtype, false, false};
      bool refused = false;
      try {
        infer(graph, {&type, 1}, {}, Rounding::once, "f");
      } catch (const Error&) {
        refused = true;
      }
      EXPECT_EQ(accepts(op, entry.dtype), !refused) << op.name << " of " << entry.name;
    }
  }
}

TEST(OpTable, ArityFollowsFromTheRule) {
  for (const OpInfo& op : all_ops()) {
    switch (op.rule) {
      case Rule::index:
      case Rule::leaf: EXPECT_EQ(op.arity, 0) << op.name; break;
      case Rule::convert:
      case Rule::predicate:
      case Rule::integral:
      case Rule::component: EXPECT_EQ(op.arity, 1) << op.name; break;
      case Rule::compare:
      case Rule::shift: EXPECT_EQ(op.arity, 2) << op.name; break;
      case Rule::random:
      case Rule::select: EXPECT_EQ(op.arity, 3) << op.name; break;
      default: EXPECT_GE(op.arity, 1) << op.name; EXPECT_LE(op.arity, 3) << op.name;
    }
  }
}

// Device code spells floats' operators and the text form's alike only where C++ means the same.
TEST(OpTable, InfixIsNeverAnOperatorThatCppGivesAnotherMeaning) {
  for (const OpInfo& op : all_ops()) {
    for (const char* other : {"//", "%", "**", "<<", ">>", "and", "or", "not"})
      EXPECT_NE(op.infix, other) << op.name;
    EXPECT_TRUE(op.infix.empty() || op.arity == 1 || op.arity == 2) << op.name;
  }
}

bool has_floating_result(const OpInfo& op) {
  switch (op.rule) {
    case Rule::same:
    case Rule::integral:
    case Rule::floating: return true;
    default: return false;
  }
}

TEST(OpTable, EveryBoundIsThatOfARealImplementation) {
  for (const OpInfo& op : all_ops()) {
    for (const Bounds& bounds : {op.f32, op.f64}) {
      for (const double bound : {bounds.own, bounds.libm, bounds.cuda, bounds.hip}) {
        EXPECT_TRUE(bound == 0 || (bound >= 0.5 && bound <= 10)) << op.name;
        EXPECT_EQ(bound == 0, bounds.own == 0) << op.name << ": exact for some and not for others";
      }
    }
  }
}

TEST(OpTable, ABoundIsPromisedForEveryOpDtypeAccuracyAndDeviceButFastOnGpus) {
  for (const OpInfo& op : all_ops()) {
    if (!has_floating_result(op)) continue;
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const Accuracy accuracy : {Accuracy::storage, Accuracy::strict, Accuracy::fast}) {
        for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda, DeviceType::hip}) {
          const std::optional<double> bound = error_bound(op, dtype, accuracy, device);
          if (accuracy != Accuracy::fast || device == DeviceType::cpu || dtype == DType::f64) {
            ASSERT_TRUE(bound.has_value()) << op.name << " " << name(dtype);
          }
          if (bits(dtype) == 16) {
            EXPECT_LE(bound.value_or(0), kStorageBound) << op.name;
          }
        }
      }
    }
  }
}

TEST(Bound, IsOfWhoComputes) {
  const OpInfo& exp = info(Op::exp);
  const auto bound = [&](DType dtype, Accuracy accuracy, DeviceType device) {
    return error_bound(exp, dtype, accuracy, device).value_or(-1);
  };
  EXPECT_EQ(bound(DType::f32, Accuracy::storage, DeviceType::cpu), exp.f32.own);
  EXPECT_EQ(bound(DType::f32, Accuracy::strict, DeviceType::cpu), exp.f32.libm);
  EXPECT_EQ(bound(DType::f64, Accuracy::storage, DeviceType::cpu), exp.f64.libm);
  EXPECT_EQ(bound(DType::f32, Accuracy::storage, DeviceType::hip), exp.f32.hip);
  EXPECT_EQ(bound(DType::f64, Accuracy::fast, DeviceType::cuda), exp.f64.cuda);
  EXPECT_EQ(bound(DType::bf16, Accuracy::strict, DeviceType::cuda), kStorageBound);
  EXPECT_EQ(bound(DType::f32, Accuracy::fast, DeviceType::cuda), -1);
  EXPECT_EQ(error_bound(info(Op::div), DType::f32, Accuracy::fast, DeviceType::hip), std::nullopt);
  EXPECT_EQ(error_bound(info(Op::add), DType::f32, Accuracy::fast, DeviceType::hip), 0.5);
}

TEST(UlpError, CountsUnitsInTheLastPlaceOfTheResultsDtype) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ulp_error(1.0L, 1.0L, DType::f32), 0);
  EXPECT_EQ(ulp_error(1.0L + 0x1p-23L, 1.0L, DType::f32), 1);
  EXPECT_EQ(ulp_error(1.0L, 1.0L - 0x1p-25L, DType::f32), 0.5);
  EXPECT_EQ(ulp_error(3.0L, 3.0L + 0x1p-10L, DType::f16), 0.5);
  EXPECT_EQ(ulp_error(0.0L, 0x1p-150L, DType::f32), 0.5);
  EXPECT_EQ(ulp_error(kInf, 65520.0L, DType::f16), 0.5);
  EXPECT_EQ(ulp_error(kInf, 1e9L, DType::f16), 0);
  EXPECT_EQ(ulp_error(-0.0L, 0.0L, DType::f32), kWrongResult);
  EXPECT_EQ(ulp_error(std::nan(""), 1.0L, DType::f32), kWrongResult);
  EXPECT_EQ(ulp_error(std::nan(""), std::nan(""), DType::f32), 0);
}

TEST(CountedError, IsInUnitsOfTheLargestTermWhereTermsCancel) {
  const long double near_zero[] = {-2.457024738L};  // lgamma has a zero here, lgamma(1 - x) is 1.2
  const long double exact = std::lgamma(near_zero[0]);
  const long double off = exact + 0x1p-23L;
  EXPECT_GT(ulp_error(off, exact, DType::f32), 100);
  EXPECT_EQ(counted_error(Op::lgamma, off, exact, near_zero, DType::f32), 1);
  const long double positive[] = {1 + 0x1p-20L};
  const long double small = std::lgamma(positive[0]);
  EXPECT_GT(counted_error(Op::lgamma, small + 0x1p-23L, small, positive, DType::f32), 100);
  const long double opposite[] = {1.0L, -1.0L, 0.5L};
  EXPECT_EQ(counted_error(Op::lerp, 0x1p-23L, 0.0L, opposite, DType::f32), 1);
}

}  // namespace
}  // namespace kiln::fusion
