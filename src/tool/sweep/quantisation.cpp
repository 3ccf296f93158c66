// Functions that quantise and dequantise, by rows, groups and columns.
#include <fmt/format.h>

#include "tool/sweep/grammar.hpp"

namespace kiln::tool {
namespace {

struct Storage {
  DType dtype;
  double largest;
};

Storage storage(Draw& draw) {
  return draw.pick<Storage>({{DType::i8, 127},
                             {DType::i8, 127},
                             {DType::f8e4m3, 448},
                             {DType::f8e4m3, 448},
                             {DType::f8e5m2, 57344},
                             {DType::i4, 7}});
}

// What is quantised: an input of norms, or a norm of one.
std::string quantised_value(Draw& draw, DType dtype, const Extents& extents) {
  const std::string h = norm_input(draw, dtype, extents);
  if (!draw.chance(35)) return h;
  const std::string weight = draw.argument("weight", draw.weight_dtype(dtype), {extents.back()});
  return draw.let("n", fmt::format("rms_norm({}, {}, 1e-6)", h, weight));
}

// `h` over its scale `s`, as it is stored.
std::string stored(const Storage& to, const std::string& h, const std::string& s) {
  if (is_floating(to.dtype)) return fmt::format("{}({} / {})", name(to.dtype), h, s);
  return fmt::format("{}(round({} / {}))", name(to.dtype), h, s);
}

std::string scale_of(const Storage& to, const std::string& h, int axis) {
  return fmt::format("max(abs({}), {}) / {:.1f} + 1e-8", h, axis, to.largest);
}

// From the least to the largest of a row, without a sign.
DrawnFunction quantise_between(Draw& draw, const std::string& h) {
  const Storage to = draw.pick<Storage>({{DType::u8, 255}, {DType::u4, 15}});
  draw.let("lo", fmt::format("min({}, -1)", h));
  draw.let("s", fmt::format("(max({}, -1) - lo) / {:.1f} + 1e-8", h, to.largest));
  return draw.finish({fmt::format("{}(round(({} - lo) / s))", name(to.dtype), h), "s", "lo"});
}

}  // namespace

DrawnFunction draw_quantise(Draw& draw) {
  const DType dtype = draw.dtype();
  const Storage to = storage(draw);
  switch (draw.below(5)) {
    case 0: {  // by columns
      const auto rows = draw.pick<std::int64_t>({16, 64, 128, 1024});
      const auto columns = draw.pick<std::int64_t>({64, 128, 768, 4096});
      const std::string x = draw.argument("x", dtype, {kFreeExtent, rows, columns});
      draw.let("s", scale_of(to, x, -2));
      return draw.finish({stored(to, x, "s"), "s"});
    }
    case 1: {  // by groups
      const auto group = draw.pick<std::int64_t>({32, 64, 128});
      const std::int64_t columns = draw.divisible_length(group);
      draw.maybe_few();
      const std::string h = quantised_value(draw, dtype, {kFreeExtent, columns});
      draw.let("p", fmt::format("reshape({}, 0, {}, {})", h, columns / group, group));
      draw.let("s", scale_of(to, "p", -1));
      return draw.finish(
          {fmt::format("reshape({}, 0, {})", stored(to, "p", "s"), columns), "s[..., 0]"});
    }
    case 2: {  // by a scale that is there
      const Extents extents = {kFreeExtent, draw.divisible_length(2)};
      const std::string h = quantised_value(draw, dtype, extents);
      const std::string s = draw.argument("s", DType::f32, {1}, RandomFloats::positive);
      const std::string value =
          fmt::format(fmt::runtime(is_floating(to.dtype) ? "{} / {}" : "round({} / {})"), h, s);
      return draw.finish(
          {fmt::format("{0}(clip({1}, -{2:.1f}, {2:.1f}))", name(to.dtype), value, to.largest)});
    }
    default: {  // by rows
      const Extents extents = {kFreeExtent, draw.divisible_length(2)};
      draw.maybe_few();
      const std::string h = quantised_value(draw, dtype, extents);
      if (draw.chance(15)) return quantise_between(draw, h);
      draw.let("s", scale_of(to, h, -1));
      return draw.finish({stored(to, h, "s"), "s"});
    }
  }
}

DrawnFunction draw_dequantise(Draw& draw) {
  const DType dtype = draw.dtype();
  const DType from = draw.pick({DType::i8, DType::i8, DType::u8, DType::f8e4m3, DType::f8e5m2,
                                DType::u4, DType::u4, DType::i4});
  const DType scales = draw.weight_dtype(dtype);
  Extents extents = {kFreeExtent, draw.divisible_length(2)};
  Extents scale = {kFreeExtent, 1};
  switch (draw.below(4)) {
    case 0: {  // by groups
      const auto group = draw.pick<std::int64_t>({32, 64, 128});
      const std::int64_t columns = draw.divisible_length(group);
      extents = {kFreeExtent, columns / group, group};
      scale = {kFreeExtent, columns / group, 1};
      break;
    }
    case 1: scale = {extents[1]}; break;  // by columns
    default: draw.maybe_few(); break;     // by rows
  }
  const std::string q = draw.argument("q", from, extents);
  const std::string s = draw.argument("s", scales, scale, RandomFloats::positive);
  std::string value;
  if (!is_floating(from) && draw.chance(50)) {
    const std::string zero = draw.argument("z", scales, scale);
    value = draw.let("y", fmt::format("(f32({}) - {}) * {}", q, zero, s));
  } else {
    value = draw.let("y", fmt::format("f32({}) * {}", q, s));
  }
  const std::int64_t steps = draw.pick<std::int64_t>({0, 0, 1, 2});
  for (int k = 0; k < steps; ++k) value = step(draw, value, dtype, extents, k);
  return draw.finish({fmt::format("{}({})", name(dtype), value)});
}

}  // namespace kiln::tool
