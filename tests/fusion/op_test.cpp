// The op table: every op is found by its name, and what each row says fits together.
#include "fusion/op.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kiln::fusion {
namespace {

bool is_written_by_users(const OpInfo& op) {
  return op.rule != Rule::leaf && op.rule != Rule::convert;
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

TEST(OpTable, ArityFollowsFromTheRule) {
  for (const OpInfo& op : all_ops()) {
    switch (op.rule) {
      case Rule::leaf: EXPECT_EQ(op.arity, 0) << op.name; break;
      case Rule::convert:
      case Rule::predicate:
      case Rule::integral:
      case Rule::component: EXPECT_EQ(op.arity, 1) << op.name; break;
      case Rule::compare:
      case Rule::shift: EXPECT_EQ(op.arity, 2) << op.name; break;
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

TEST(OpTable, BoundsAreThoseOfARealImplementation) {
  for (const OpInfo& op : all_ops()) {
    EXPECT_TRUE(op.ulp_f32 == 0 || op.ulp_f32 >= 0.5) << op.name;
    EXPECT_TRUE(op.ulp_f64 == 0 || op.ulp_f64 >= 0.5) << op.name;
    EXPECT_LE(op.ulp_f32, 6) << op.name;
    EXPECT_LE(op.ulp_f64, 6) << op.name;
  }
}

}  // namespace
}  // namespace kiln::fusion
