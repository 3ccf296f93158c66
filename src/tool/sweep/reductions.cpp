// Functions that reduce and scan: norms and softmaxes of rows and of columns, several statistics of
// the same rows, gradients of norms, running sums.
#include <fmt/format.h>

#include "tool/sweep/grammar.hpp"

namespace kiln::tool {
namespace {

// `h` scaled by what its row or, for another axis, its column gives.
std::string normalised(Draw& draw, const std::string& h, int axis) {
  switch (draw.below(7)) {
    case 0: {
      draw.let("mu", fmt::format("mean({}, {})", h, axis));
      draw.let("c", fmt::format("{} - mu", h));
      return fmt::format("c * rsqrt(mean(c * c, {}) + 1e-5)", axis);
    }
    case 1: return fmt::format("{0} * rsqrt(mean({0} * {0}, {1}) + 1e-6)", h, axis);
    case 2: return fmt::format("{0} * rsqrt(sum({0} * {0}, {1}) + 1e-6)", h, axis);
    case 3: return fmt::format("{0} / (max(abs({0}), {1}) + 1e-6)", h, axis);
    case 4:
      draw.let("lo", fmt::format("min({}, {})", h, axis));
      return fmt::format("({0} - lo) / (max({0}, {1}) - lo + 1e-6)", h, axis);
    case 5: return fmt::format("{0} - logsumexp({0}, {1})", h, axis);
    default: return fmt::format("softmax({}, {})", h, axis);
  }
}

// The norms and softmaxes that have a name, over the innermost axis.
std::string row_norm(Draw& draw, const std::string& h, DType dtype, std::int64_t columns) {
  const DType weights = draw.weight_dtype(dtype);
  switch (draw.below(7)) {
    case 0:
    case 1:
      return fmt::format("rms_norm({}, {}, 1e-6)", h, draw.argument("weight", weights, {columns}));
    case 2: {
      const std::string weight = draw.argument("weight", weights, {columns});
      const std::string bias = draw.argument("bias", weights, {columns});
      return fmt::format("layer_norm({}, {}, {}, 1e-5)", h, weight, bias);
    }
    case 3: return fmt::format("softmax({} * 0.125, -1)", h);
    case 4: return fmt::format("log_softmax({}, -1)", h);
    case 5: {
      const Extents shape = {draw.chance(50) ? kFreeExtent : 1, columns};
      const std::string mask = draw.argument("mask", DType::boolean, shape);
      return fmt::format("softmax(where({}, {} * 0.125, -inf), -1)", mask, h);
    }
    default: return normalised(draw, h, -1);
  }
}

// One number of a row.
std::string statistic(Draw& draw, const std::string& x, int axis) {
  constexpr const char* kForms[] = {
      "sum({0}, {1})",      "mean({0}, {1})",      "max({0}, {1})",      "min({0}, {1})",
      "var({0}, {1})",      "std({0}, {1})",       "norm2({0}, {1})",    "logsumexp({0}, {1})",
      "max(abs({0}), {1})", "sum({0} * {0}, {1})", "mean(abs({0}), {1})"};
  return fmt::format(fmt::runtime(kForms[draw.below(std::ssize(kForms))]), x, axis);
}

// Rows and columns of arrays that have both. Some have one matrix whose columns are as many as fit.
Extents with_columns(Draw& draw) {
  if (draw.chance(35)) {
    draw.free_innermost();
    return {draw.pick<std::int64_t>({64, 256, 1024, 4096, 16384, 65536}), kFreeExtent};
  }
  const auto rows = draw.pick<std::int64_t>({4, 8, 16, 77, 128, 512, 1024});
  const auto columns = draw.pick<std::int64_t>({32, 64, 96, 128, 768, 1001, 4096});
  return {kFreeExtent, rows, columns};
}

}  // namespace

DrawnFunction draw_rows(Draw& draw) {
  const DType dtype = draw.dtype();
  const Extents extents = {kFreeExtent, draw.row_length()};
  draw.maybe_few();
  const std::string h = norm_input(draw, dtype, extents);
  std::string value = draw.let("y", row_norm(draw, h, dtype, extents[1]));
  if (draw.chance(12)) {  // a norm after a layer and the one before the next
    const std::string residual = draw.argument("z", dtype, extents);
    draw.let("next", fmt::format("{} + {}", residual, value));
    const std::string weight = draw.argument("v", dtype, {extents[1]});
    return draw.finish({"next", fmt::format("rms_norm(next, {}, 1e-6)", weight)});
  }
  const std::int64_t steps = draw.pick<std::int64_t>({0, 0, 0, 1, 1, 2, 4});
  for (int k = 0; k < steps; ++k) value = step(draw, value, dtype, extents, k);
  if (h == "h" && draw.chance(40)) return draw.finish({h, value});
  return draw.finish({value});
}

DrawnFunction draw_columns(Draw& draw) {
  const DType dtype = draw.dtype();
  const Extents extents = with_columns(draw);
  const std::string h = norm_input(draw, dtype, extents);
  if (draw.chance(40)) {
    std::vector<std::string> outputs;
    const std::int64_t count = 1 + draw.below(3);
    for (std::int64_t k = 0; k < count; ++k) outputs.push_back(statistic(draw, h, -2));
    return draw.finish(outputs);
  }
  std::string value = draw.let("y", normalised(draw, h, -2));
  const std::int64_t steps = draw.below(3);
  for (int k = 0; k < steps; ++k) value = step(draw, value, dtype, extents, k);
  return draw.finish({value});
}

DrawnFunction draw_statistics(Draw& draw) {
  const DType dtype = draw.dtype();
  const Extents extents = {kFreeExtent, draw.row_length()};
  draw.maybe_few();
  if (draw.chance(60)) {
    const std::string h = norm_input(draw, dtype, extents);
    std::vector<std::string> outputs;
    const std::int64_t count = 2 + draw.below(3);
    for (std::int64_t k = 0; k < count; ++k) outputs.push_back(statistic(draw, h, -1));
    if (draw.chance(30)) outputs.push_back(draw.let("y", normalised(draw, h, -1)));
    return draw.finish(outputs);
  }
  const std::string x = draw.argument("x", dtype, extents);
  const std::string y = draw.argument("y", dtype, draw.chance(50) ? extents : Extents{extents[1]});
  switch (draw.below(4)) {
    case 0:
      return draw.finish(
          {fmt::format("sum({0} * {1}, -1) * rsqrt(sum({0} * {0}, -1) * "
                       "sum({1} * {1}, -1) + 1e-6)",
                       x, y)});
    case 1: {
      const std::string z = draw.argument("z", dtype, {extents[1]});
      return draw.finish(
          {fmt::format("sum({} * {}, -1)", x, y), fmt::format("sum({} * {}, -1)", x, z)});
    }
    case 2:
      draw.let("p", fmt::format("softmax({}, -1)", x));
      return draw.finish({fmt::format("sum(p * (log(p + 1e-9) - {}), -1)", y)});
    default:
      draw.let("d", fmt::format("{} - {}", x, y));
      return draw.finish({"mean(d * d, -1)", "max(abs(d), -1)"});
  }
}

DrawnFunction draw_gradients(Draw& draw) {
  const DType dtype = draw.dtype();
  const std::int64_t columns = draw.row_length();
  const Extents extents = {kFreeExtent, columns};
  draw.maybe_few();
  const std::string g = draw.argument("g", dtype, extents);
  const std::string x = draw.argument("x", dtype, extents);
  switch (draw.below(5)) {
    case 0:  // softmax
      return draw.finish({fmt::format("{1} * ({0} - sum({0} * {1}, -1))", g, x)});
    case 1: {  // of a norm by the root of the mean square
      const std::string w = draw.argument("w", dtype, {columns});
      draw.let("r", fmt::format("rsqrt(mean({0} * {0}, -1) + 1e-6)", x));
      draw.let("gw", fmt::format("f32({}) * {}", g, w));
      return draw.finish(
          {fmt::format("{}(r * (gw - {} * (mean(gw * {}, -1) * r * r)))", name(dtype), x, x)});
    }
    case 2: {  // of a layer norm, with what its weight's gradient sums
      const std::string w = draw.argument("w", dtype, {columns});
      const std::string mean = draw.argument("mu", DType::f32, {kFreeExtent, 1});
      const std::string scale =
          draw.argument("r", DType::f32, {kFreeExtent, 1}, RandomFloats::positive);
      draw.let("n", fmt::format("({} - {}) * {}", x, mean, scale));
      draw.let("gw", fmt::format("f32({}) * {}", g, w));
      return draw.finish(
          {fmt::format("{}({} * (gw - mean(gw, -1) - n * mean(gw * n, -1)))", name(dtype), scale)});
    }
    case 3:  // of SiLU and of the gate beside it
      draw.let("s", fmt::format("sigmoid({})", x));
      draw.let("u", draw.argument("up", dtype, extents) + " * 1.0");
      return draw.finish({fmt::format("{} * u * s * (1.0 + {} * (1.0 - s))", g, x),
                          fmt::format("{} * {} * s", g, x)});
    default:  // of the logarithm of a softmax, from what it gave
      return draw.finish({fmt::format("{0} - exp(-abs({1})) * sum({0}, -1)", g, x)});
  }
}

DrawnFunction draw_scans(Draw& draw) {
  const DType dtype = draw.dtype();
  const bool along = draw.chance(70);
  const Extents extents = along ? Extents{kFreeExtent, draw.row_length()}
                                : Extents{kFreeExtent, draw.pick<std::int64_t>({64, 512, 2048}),
                                          draw.pick<std::int64_t>({64, 128, 1024})};
  const int axis = along ? -1 : -2;
  const std::string x = draw.argument("x", dtype, extents);
  switch (draw.below(6)) {
    case 0: return draw.finish({fmt::format("cumsum({}, {})", x, axis)});
    case 1: return draw.finish({fmt::format("cumsum(f32({0}), {1}) - {0}", x, axis)});
    case 2: return draw.finish({fmt::format("cumsum(softmax({}, {}), {})", x, axis, axis)});
    case 3: return draw.finish({fmt::format("exp(cumsum(-softplus(f32({})), {}))", x, axis)});
    case 4: {
      const std::string y = draw.argument("y", dtype, extents);
      return draw.finish({fmt::format("cumsum(f32({}) * sigmoid({}), {})", y, x, axis)});
    }
    default: return draw.finish({fmt::format("cummax({}, {}) - {}", x, axis, x)});
  }
}

}  // namespace kiln::tool
