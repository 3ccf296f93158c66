#include "tool/sweep/draw.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "tool/commands.hpp"
#include "tool/sweep/grammar.hpp"

namespace kiln::tool {
namespace {

struct DrawnFamily {
  std::string_view name;
  DrawnFunction (*draw)(Draw&);
};
constexpr DrawnFamily kFamilies[] = {
    {"elementwise", draw_elementwise},
    {"rows", draw_rows},
    {"columns", draw_columns},
    {"statistics", draw_statistics},
    {"gradients", draw_gradients},
    {"halves", draw_halves},
    {"permutations", draw_permutations},
    {"quantise", draw_quantise},
    {"dequantise", draw_dequantise},
    {"images", draw_images},
    {"scans", draw_scans},
    {"selections", draw_selections},
};

std::uint64_t bytes_with(const DrawnArgument& argument, std::int64_t free) {
  return fusion::byte_count(argument.dtype, shape_of(argument, free));
}

}  // namespace

std::vector<std::string_view> sweep_families() {
  std::vector<std::string_view> names;
  for (const DrawnFamily& family : kFamilies) names.push_back(family.name);
  return names;
}

std::vector<DrawnFunction> draw_functions(std::uint64_t seed, std::size_t count,
                                          std::string_view family) {
  const auto* const chosen = std::ranges::find(kFamilies, family, &DrawnFamily::name);
  if (!family.empty() && chosen == std::end(kFamilies)) {
    throw UsageError(fmt::format("bench --sweep: --family: expected one of {}, got '{}'",
                                 fmt::join(sweep_families(), ", "), family));
  }
  std::vector<DrawnFunction> functions;
  for (std::size_t k = 0; k < count; ++k) {
    const DrawnFamily& own = family.empty() ? kFamilies[k % std::size(kFamilies)] : *chosen;
    Random numbers(seed);
    Random function(numbers.next() + k);
    Draw draw(function.next());
    functions.push_back(own.draw(draw));
    functions.back().family = own.name;
    functions.back().name = fmt::format("{}_{}", own.name, k);
  }
  return functions;
}

std::int64_t free_extent(const DrawnFunction& function, std::uint64_t bytes) {
  std::uint64_t most = 1;
  for (const DrawnArgument& argument : function.arguments) {
    most = std::max(most, (bytes_with(argument, 4) - bytes_with(argument, 2) + 1) / 2);
  }
  const auto fit = static_cast<std::int64_t>(bytes / most) / function.share;
  return fit < function.multiple ? std::max<std::int64_t>(1, fit)
                                 : fit / function.multiple * function.multiple;
}

Dims shape_of(const DrawnArgument& argument, std::int64_t free) {
  std::vector<std::int64_t> extents = argument.extents;
  std::ranges::replace(extents, kFreeExtent, free);
  return Dims(std::span<const std::int64_t>(extents));
}

std::string to_text(const DrawnArgument& argument, std::int64_t free) {
  return fmt::format("{}={}[{}]", argument.name, name(argument.dtype),
                     fmt::join(shape_of(argument, free), ","));
}

}  // namespace kiln::tool
