// What `kiln bench --sweep` measures: functions drawn from a grammar of what inference engines
// fuse, with their dtypes and sizes. A seed gives the same functions on every machine, and function
// k of a seed does not depend on how many are drawn. Nothing is measured here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"
#include "tool/bench_values.hpp"

namespace kiln::tool {

/// An extent that stands for as many as the size of the data allows. The elements of a function
/// along it do not depend on each other, so that a part of them can be checked alone.
inline constexpr std::int64_t kFreeExtent = -1;

struct DrawnArgument {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;  ///< one of them may be kFreeExtent
  RandomFloats values = RandomFloats::around_zero;
};

struct DrawnFunction {
  std::string name;  ///< its family and its number: rows_12
  std::string family;
  std::string text;
  std::vector<DrawnArgument> arguments;
  std::int64_t share = 1;     ///< it takes one such part of the size of the data
  std::int64_t multiple = 1;  ///< of which the free extent is one, where it is not less
};

/// The families of functions, in the order in which they are drawn in turn.
std::vector<std::string_view> sweep_families();

/// `count` functions, of one family or, if that is empty, of all in turn. Throws UsageError for a
/// family that there is not.
std::vector<DrawnFunction> draw_functions(std::uint64_t seed, std::size_t count,
                                          std::string_view family);

/// The free extent with which the argument that grows fastest takes `bytes`, or its share of them;
/// at least 1.
std::int64_t free_extent(const DrawnFunction& function, std::uint64_t bytes);

/// The shape of an argument with that free extent.
Dims shape_of(const DrawnArgument& argument, std::int64_t free);

/// "x=bf16[4096,5120]".
std::string to_text(const DrawnArgument& argument, std::int64_t free);

}  // namespace kiln::tool
