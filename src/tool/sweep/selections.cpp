// Functions that choose: masks, thresholds, labels, largest elements.
#include <fmt/format.h>

#include "tool/sweep/grammar.hpp"

namespace kiln::tool {

DrawnFunction draw_selections(Draw& draw) {
  const DType dtype = draw.dtype();
  if (draw.chance(15)) {  // scores of earlier positions
    const auto length = draw.pick<std::int64_t>({128, 256, 512, 1024, 2048});
    const std::string x = draw.argument("x", dtype, {kFreeExtent, length, length});
    return draw.finish(
        {fmt::format("softmax(where(iota(-1) <= iota(-2), {} * 0.125, -inf), -1)", x)});
  }
  const std::int64_t columns = draw.row_length();
  const Extents extents = {kFreeExtent, columns};
  const Extents of_rows = {kFreeExtent, 1};
  draw.maybe_few();
  const std::string x = draw.argument("x", dtype, extents);
  switch (draw.below(8)) {
    case 0: {  // of tokens that are likely enough
      const std::string least = draw.argument("least", dtype, of_rows);
      draw.let("kept", fmt::format("where({0} >= {1}, {0}, -inf)", x, least));
      return draw.finish({"softmax(kept, -1)"});
    }
    case 1: return draw.finish({fmt::format("argmax({}, -1)", x)});
    case 2: {  // of positions that are there
      const std::string length = draw.argument("length", DType::i32, of_rows);
      return draw.finish(
          {fmt::format("softmax(where(iota(-1) <= {}, {} * 0.125, -inf), -1)", length, x)});
    }
    case 3: {  // the loss of a label
      const std::string label = draw.argument("label", DType::i32, of_rows);
      return draw.finish({fmt::format(
          "logsumexp({0}, -1) - sum(where(iota(-1) == {1}, {0}, 0.0), -1)", x, label)});
    }
    case 4: {
      const std::string y = draw.argument("y", dtype, extents);
      const std::string m = draw.argument("m", DType::boolean, extents);
      return draw.finish({fmt::format("where({}, {}, {} * 0.5)", m, x, y)});
    }
    case 5: {  // dropout, a residual and the norm of both
      const std::string u = draw.argument("u", DType::f32, extents);
      const std::string r = draw.argument("r", dtype, extents);
      const std::string w = draw.argument("w", dtype, {columns});
      draw.let("h", fmt::format("where({} > 0.1, {} / 0.9, 0.0) + {}", u, x, r));
      return draw.finish({"h", fmt::format("rms_norm(h, {}, 1e-6)", w)});
    }
    case 6: {  // how many, and their mean
      const std::string least = draw.argument("least", dtype, of_rows);
      draw.let("n", fmt::format("sum(f32({} > {}), -1)", x, least));
      return draw.finish(
          {fmt::format("sum(where({0} > {1}, {0}, 0.0), -1) / (n + 1.0)", x, least), "n"});
    }
    default: {  // the gradient of a loss of labels
      const std::string label = draw.argument("label", DType::i32, of_rows);
      return draw.finish({fmt::format("softmax({}, -1) - f32(iota(-1) == {})", x, label)});
    }
  }
}

}  // namespace kiln::tool
