// Functions without reductions: chains with broadcasts, views and several outputs; halves and pairs
// of a row; permuted axes.
#include <fmt/format.h>

#include "tool/sweep/grammar.hpp"

namespace kiln::tool {
namespace {

// An operand of the shape `extents` that is a part of an array or another order of it.
std::string viewed(Draw& draw, DType dtype, const Extents& extents) {
  const std::int64_t columns = extents.back();
  Extents wider = extents;
  switch (draw.below(4)) {
    case 0:
      wider.back() = 2 * columns;
      return fmt::format("{}[..., {}:]", draw.argument("y", dtype, wider), columns);
    case 1:
      wider.back() = 2 * columns;
      return fmt::format("{}[..., 1::2]", draw.argument("y", dtype, wider));
    case 2:
      wider.back() = columns + 8;
      return fmt::format("{0}[..., 3:{1}]", draw.argument("y", dtype, wider), columns + 3);
    default:
      return fmt::format("swapaxes({}, 0, 1)", draw.argument("y", dtype, {columns, extents[0]}));
  }
}

// One update of an optimiser, which has as many outputs as moments.
DrawnFunction optimiser(Draw& draw) {
  draw.free_innermost();
  const Extents all = {kFreeExtent};
  const std::string p = draw.argument("p", DType::f32, all);
  const std::string g = draw.argument("g", draw.dtype(), all);
  const std::string m = draw.argument("m", DType::f32, all);
  const std::string m1 = draw.let("m1", fmt::format("0.9 * {} + 0.1 * {}", m, g));
  if (draw.chance(50)) {
    return draw.finish({fmt::format("{0} - 1e-3 * (sign({1}) + 0.01 * {0})", p, m1), m1});
  }
  const std::string v = draw.argument("v", DType::f32, all, RandomFloats::positive);
  const std::string v1 = draw.let("v1", fmt::format("0.999 * {0} + 0.001 * {1} * {1}", v, g));
  const std::string p1 =
      draw.let("p1", fmt::format("{} - 1e-3 * ({} / (sqrt({}) + 1e-8))", p, m1, v1));
  if (draw.chance(50)) return draw.finish({p1, m1, v1});
  return draw.finish({p1, m1, v1, fmt::format("bf16({})", p1)});
}

// The two halves of a rotary embedding of the parts a and b, which c and s turn.
void rotate(Draw& draw, const Extents& angles, const std::string& a, const std::string& b) {
  const std::string c = draw.argument("c", DType::f32, angles);
  const std::string s = draw.argument("s", DType::f32, angles);
  draw.let("u", fmt::format("{} * {} - {} * {}", a, c, b, s));
  draw.let("v", fmt::format("{} * {} + {} * {}", b, c, a, s));
}

DrawnFunction rotary(Draw& draw, DType dtype) {
  const std::int64_t heads = draw.pick<std::int64_t>({1, 8, 32});
  const std::int64_t length = draw.pick<std::int64_t>({64, 96, 128, 256});
  std::string x = draw.argument("x", dtype, {kFreeExtent, heads, length});
  if (draw.chance(40)) {
    const std::string w = draw.argument("w", dtype, {length});
    x = draw.let("h", fmt::format("rms_norm({}, {}, 1e-6)", x, w));
  }
  const bool pairs = draw.chance(50);
  draw.let("a", fmt::format(fmt::runtime(pairs ? "{}[..., 0::2]" : "{}[..., :{}]"), x, length / 2));
  draw.let("b", fmt::format(fmt::runtime(pairs ? "{}[..., 1::2]" : "{}[..., {}:]"), x, length / 2));
  rotate(draw, {kFreeExtent, 1, length / 2}, "a", "b");
  return draw.finish({pairs ? "reshape(stack(-1, u, v), 0, 0, -1)" : "concat(-1, u, v)"});
}

}  // namespace

DrawnFunction draw_elementwise(Draw& draw) {
  if (draw.chance(15)) return optimiser(draw);
  const DType dtype = draw.dtype();
  const bool flat = draw.chance(25);
  Extents extents = {kFreeExtent};
  if (flat) {
    draw.free_innermost();
  } else {
    extents.push_back(draw.row_length());
    draw.maybe_few();
  }
  std::string value = draw.argument("x", dtype, extents);
  std::vector<std::string> outputs;
  const std::int64_t steps = 1 + draw.below(6);
  for (int k = 0; k < steps; ++k) {
    value = flat ? draw.let(fmt::format("t{}", k), activation(draw, value))
                 : step(draw, value, dtype, extents, k);
    if (k + 1 < steps && draw.chance(15)) outputs.push_back(value);
  }
  if (flat) {
    const std::string y = draw.argument("y", draw.weight_dtype(dtype), extents);
    value = draw.let("t", fmt::format("{} * {}", value, y));
  } else if (draw.chance(35)) {
    const std::string y = viewed(draw, dtype, extents);
    value = draw.let("t", fmt::format("{} + {}", value, y));
  }
  const std::string_view cast = draw.pick<std::string_view>({"", "", "", "", "bf16", "f16", "f32"});
  outputs.push_back(cast.empty() ? value : fmt::format("{}({})", cast, value));
  return draw.finish(outputs);
}

DrawnFunction draw_halves(Draw& draw) {
  const DType dtype = draw.dtype();
  if (draw.chance(40)) return rotary(draw, dtype);
  const std::int64_t columns = draw.row_length();
  draw.maybe_few();
  if (draw.chance(15)) {  // differences of neighbours
    const std::string x = draw.argument("x", dtype, {kFreeExtent, columns});
    return draw.finish({fmt::format("{0}[..., 1:] - {0}[..., :-1]", x)});
  }
  if (draw.chance(20)) {  // two arrays side by side
    const std::string x = draw.argument("x", dtype, {kFreeExtent, columns});
    const std::string y = draw.argument("y", dtype, {kFreeExtent, columns / 2});
    const std::string first = activation(draw, x);
    return draw.finish({fmt::format("concat(-1, {}, {} * 1.0)", first, y)});
  }
  const std::string x = draw.argument("x", dtype, {kFreeExtent, 2 * columns});
  const bool pairs = draw.chance(35);
  draw.let("a", fmt::format(fmt::runtime(pairs ? "{}[..., 0::2]" : "{}[..., :{}]"), x, columns));
  draw.let("b", fmt::format(fmt::runtime(pairs ? "{}[..., 1::2]" : "{}[..., {}:]"), x, columns));
  std::string value = draw.let("y", fmt::format("{} * b", activation(draw, "a")));
  const std::int64_t steps = draw.below(3);
  for (int k = 0; k < steps; ++k) value = step(draw, value, dtype, {kFreeExtent, columns}, k);
  return draw.finish({value});
}

DrawnFunction draw_permutations(Draw& draw) {
  const DType dtype = draw.dtype();
  const std::int64_t heads = draw.pick<std::int64_t>({4, 8, 12, 32});
  const std::int64_t length = draw.pick<std::int64_t>({48, 64, 96, 128, 256});
  const std::int64_t rows = draw.pick<std::int64_t>({77, 128, 512, 1024});
  switch (draw.below(5)) {
    case 0: {  // rows of all heads to heads of rows
      const std::string x = draw.argument("x", dtype, {kFreeExtent, rows, heads, length});
      const std::string b = draw.argument("b", dtype, {heads, 1, length});
      return draw.finish({fmt::format("transpose({}, 0, 2, 1, 3) * 0.125 + {}", x, b)});
    }
    case 1: {  // and back, behind a gate
      const std::string x = draw.argument("x", dtype, {kFreeExtent, heads, rows, length});
      const std::string g = draw.argument("g", dtype, {kFreeExtent, rows, heads * length});
      return draw.finish({fmt::format("reshape(swapaxes({}, 1, 2), 0, 0, {}) * sigmoid({})", x,
                                      heads * length, g)});
    }
    case 2: {  // columns to rows
      const std::string x = draw.argument("x", dtype, {kFreeExtent, rows, length});
      const std::string y = draw.argument("y", dtype, {kFreeExtent, length, rows});
      return draw.finish({fmt::format("swapaxes({}, -1, -2) + {}", x, y)});
    }
    case 3: {  // channels dealt out to groups
      const std::string x = draw.argument("x", dtype, {kFreeExtent, heads * length, 49});
      const std::string value = draw.let(
          "y", fmt::format("swapaxes(reshape({}, 0, {}, {}, 49), 1, 2)", x, heads, length));
      return draw.finish({fmt::format("relu(reshape({}, 0, {}, 49))", value, heads * length)});
    }
    default: {  // queries, keys and values of one projection
      const std::int64_t wide = heads * length;
      const std::string x = draw.argument("x", dtype, {kFreeExtent, rows, 3 * wide});
      const std::string b = draw.argument("b", dtype, {3 * wide});
      draw.let("p", fmt::format("{} + {}", x, b));
      draw.let("q", fmt::format("reshape(p[..., :{}], 0, 0, {}, {})", wide, heads, length));
      draw.let("k",
               fmt::format("reshape(p[..., {}:{}], 0, 0, {}, {})", wide, 2 * wide, heads, length));
      return draw.finish({"swapaxes(q, 1, 2) * 0.125", "swapaxes(k, 1, 2) * 1.0",
                          fmt::format("p[..., {}:]", 2 * wide)});
    }
  }
}

}  // namespace kiln::tool
