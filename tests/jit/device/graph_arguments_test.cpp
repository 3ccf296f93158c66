// A graph's argument storage: values survive copies, moves and growth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/device/graph.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

struct Large {
  std::int64_t values[20];
};

Arguments numbered(int count) {
  Arguments arguments;
  for (int i = 0; i < count; ++i) {
    if (i % 3 == 0) arguments.add(static_cast<char>(i));
    if (i % 3 == 1) arguments.add(static_cast<double>(i));
    if (i % 3 == 2) arguments.add(Large{{i, 2 * i}});
  }
  return arguments;
}

void expect_numbered(const Arguments& arguments, int count) {
  ASSERT_EQ(arguments.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const void* value = arguments.pointers()[i];
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(value) % 16, 0U);
    EXPECT_EQ(value, arguments[static_cast<std::size_t>(i)].data());
    if (i % 3 == 0) {
      EXPECT_EQ(*static_cast<const char*>(value), i);
    }
    if (i % 3 == 1) {
      EXPECT_EQ(*static_cast<const double*>(value), i);
    }
    if (i % 3 == 2) {
      EXPECT_EQ(static_cast<const Large*>(value)->values[1], 2 * i);
    }
  }
}

TEST(GraphArguments, SurviveGrowthCopyAndMove) {
  Arguments original = numbered(100);
  expect_numbered(original, 100);
  Arguments copy = original;
  Arguments moved = std::move(original);
  expect_numbered(moved, 100);
  moved = Arguments{};
  expect_numbered(copy, 100);
  Arguments assigned;
  assigned = copy;
  copy = numbered(2);
  expect_numbered(assigned, 100);
}

TEST(GraphArguments, CopyHasItsOwnStorage) {
  Arguments original = numbered(3);
  const Arguments copy = original;
  const double other = 77;
  original.set(1, &other, sizeof other);
  EXPECT_EQ(*static_cast<const double*>(original.pointers()[1]), 77);
  expect_numbered(copy, 3);
}

TEST(GraphArguments, SizeOfAParameterIsFixed) {
  Arguments arguments = numbered(3);
  const float narrow = 1;
  EXPECT_THROW(arguments.set(1, &narrow, sizeof narrow), Error);
  EXPECT_THROW(arguments.set(3, &narrow, sizeof narrow), Error);
  expect_numbered(arguments, 3);
}

}  // namespace
}  // namespace kiln::jit
