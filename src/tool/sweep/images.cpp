// Functions of images, whose channels are the second axis (NCHW) or the last (NHWC).
#include <fmt/format.h>

#include "tool/sweep/grammar.hpp"

namespace kiln::tool {
namespace {

struct Image {
  Extents extents;      ///< of the whole array
  Extents of_channels;  ///< of one number for each channel
  std::int64_t channels = 0;
  std::int64_t side = 0;
};

Image image(Draw& draw, bool channels_last) {
  Image result;
  result.channels = draw.pick<std::int64_t>({32, 64, 96, 128, 256, 320, 512});
  result.side = draw.pick<std::int64_t>({7, 8, 14, 16, 28, 32, 56, 64, 112});
  if (channels_last) {
    result.extents = {kFreeExtent, result.side, result.side, result.channels};
    result.of_channels = {result.channels};
  } else {
    result.extents = {kFreeExtent, result.channels, result.side, result.side};
    result.of_channels = {result.channels, 1, 1};
  }
  return result;
}

// A batch norm at inference, an activation, often a residual.
DrawnFunction batch_norm(Draw& draw, DType dtype) {
  const Image own = image(draw, draw.chance(50));
  const std::string x = draw.argument("x", dtype, own.extents);
  const std::string w = draw.argument("w", DType::f32, own.of_channels);
  const std::string b = draw.argument("b", DType::f32, own.of_channels);
  draw.let("y", fmt::format("{} * {} + {}", x, w, b));
  if (draw.chance(50)) {
    const std::string r = draw.argument("r", dtype, own.extents);
    draw.let("t", fmt::format("y + {}", r));
  } else {
    draw.let("t", "y * 1.0");
  }
  return draw.finish({fmt::format("{}({})", name(dtype), activation(draw, "t"))});
}

DrawnFunction group_norm(Draw& draw, DType dtype) {
  const bool channels_last = draw.chance(30);
  const Image own = image(draw, channels_last);
  const std::string x = draw.argument("x", dtype, own.extents);
  const std::string w = draw.argument("w", dtype, own.of_channels);
  const std::string b = draw.argument("b", dtype, own.of_channels);
  const std::int64_t pixels = own.side * own.side;
  const std::int64_t size = own.channels / 32;
  const std::string shape = channels_last ? fmt::format("{}, 32, {}", pixels, size)
                                          : fmt::format("32, {}", size * pixels);
  const std::string axes = channels_last ? "-1, -3" : "-1";
  draw.let("p", fmt::format("reshape({}, 0, {})", x, shape));
  draw.let("c", fmt::format("p - mean(p, {})", axes));
  draw.let("n", fmt::format("c * rsqrt(mean(c * c, {}) + 1e-5)", axes));
  draw.let("y", fmt::format("reshape(n, 0, {}, {}, {})", own.extents[1], own.extents[2],
                            own.extents[3]));
  draw.let("t", fmt::format("y * {} + {}", w, b));
  return draw.finish({draw.chance(60) ? "silu(t)" : "t"});
}

// Every pixel's channels.
DrawnFunction channel_norm(Draw& draw, DType dtype) {
  const Image own = image(draw, false);
  const std::string x = draw.argument("x", dtype, own.extents);
  if (draw.chance(30)) return draw.finish({fmt::format("softmax({}, 1)", x)});
  const std::string w = draw.argument("w", dtype, own.of_channels);
  draw.let("c", fmt::format("{0} - mean({0}, 1)", x));
  return draw.finish({fmt::format("c * rsqrt(mean(c * c, 1) + 1e-6) * {}", w)});
}

DrawnFunction other_layout(Draw& draw, DType dtype) {
  const bool channels_last = draw.chance(50);
  const Image own = image(draw, channels_last);
  const std::string x = draw.argument("x", dtype, own.extents);
  const std::string b = draw.argument("b", dtype, own.of_channels);
  draw.let("y", fmt::format("{} + {}", x, b));
  draw.let("t", activation(draw, "y"));
  return draw.finish({channels_last ? "transpose(t, 0, 3, 1, 2)" : "transpose(t, 0, 2, 3, 1)"});
}

// Bytes of pixels as a network takes them.
DrawnFunction pixels(Draw& draw, DType dtype) {
  const auto side = draw.pick<std::int64_t>({224, 256, 336});
  const bool transposes = draw.chance(60);
  const Extents of_channels = transposes ? Extents{3} : Extents{3, 1, 1};
  const std::string x = draw.argument(
      "x", DType::u8,
      transposes ? Extents{kFreeExtent, side, side, 3} : Extents{kFreeExtent, 3, side, side});
  const std::string mean = draw.argument("mu", DType::f32, of_channels);
  const std::string spread = draw.argument("s", DType::f32, of_channels, RandomFloats::positive);
  draw.let("y", fmt::format("(f32({}) / 255.0 - {}) / {}", x, mean, spread));
  const std::string value = transposes ? "transpose(y, 0, 3, 1, 2)" : "y";
  return draw.finish({fmt::format("{}({})", name(dtype), value)});
}

// 2 x 2 pixels to one, or channels to 2 x 2 pixels.
DrawnFunction resampled(Draw& draw, DType dtype) {
  const auto side = draw.pick<std::int64_t>({14, 16, 28, 32, 56, 112});
  const auto channels = draw.pick<std::int64_t>({32, 64, 128, 256});
  const std::string x = draw.argument("x", dtype, {kFreeExtent, channels, side, side});
  if (draw.chance(50)) {
    draw.let("p", fmt::format("reshape({0}, 0, 0, {1}, 2, {1}, 2)", x, side / 2));
    return draw.finish(
        {fmt::format("reshape({}(p, -1, -3), 0, {}, {}, {})", draw.chance(50) ? "mean" : "max",
                     channels, side / 2, side / 2)});
  }
  draw.let("p", fmt::format("reshape({0}, 0, {1}, 2, 2, {2}, {2})", x, channels / 4, side));
  return draw.finish({fmt::format("reshape(transpose(p, 0, 1, 4, 2, 5, 3), 0, {}, {}, {}) * 1.0",
                                  channels / 4, 2 * side, 2 * side)});
}

}  // namespace

DrawnFunction draw_images(Draw& draw) {
  const DType dtype = draw.dtype();
  switch (draw.below(8)) {
    case 0: return batch_norm(draw, dtype);
    case 1: return group_norm(draw, dtype);
    case 2: return channel_norm(draw, dtype);
    case 3: return other_layout(draw, dtype);
    case 4: return pixels(draw, dtype);
    case 5: return resampled(draw, dtype);
    case 6: {  // every channel of every image
      const Image own = image(draw, false);
      const std::string x = draw.argument("x", dtype, own.extents);
      const std::string w = draw.argument("w", dtype, own.of_channels);
      draw.let("c", fmt::format("{0} - mean({0}, -1, -2)", x));
      return draw.finish({fmt::format("c * rsqrt(mean(c * c, -1, -2) + 1e-5) * {}", w)});
    }
    default: {  // a gate from what all of a channel's pixels give
      const Image own = image(draw, draw.chance(30));
      const std::string x = draw.argument("x", dtype, own.extents);
      const std::string w = draw.argument("w", dtype, own.of_channels);
      const std::string b = draw.argument("b", dtype, own.of_channels);
      const bool channels_last = own.of_channels.size() == 1;
      return draw.finish({fmt::format("{0} * sigmoid(mean({0}, {1}) * {2} + {3})", x,
                                      channels_last ? "-2, -3" : "-1, -2", w, b)});
    }
  }
}

}  // namespace kiln::tool
