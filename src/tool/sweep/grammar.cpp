#include "tool/sweep/grammar.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kiln::tool {
namespace {

constexpr std::int64_t kRowLengths[] = {64,    96,    128,   256,   512,   768,    1001,   1024,
                                        1408,  2048,  2880,  4096,  4096,  5120,   8192,   11008,
                                        14336, 16384, 32768, 50257, 65536, 131072, 151936, 262144};

}  // namespace

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

std::string Draw::argument(std::string_view name, DType dtype, Extents extents,
                           RandomFloats values) {
  function_.arguments.push_back({std::string(name), dtype, std::move(extents), values});
  return std::string(name);
}

std::string Draw::let(std::string_view name, const std::string& expression) {
  function_.text += fmt::format("{} = {}; ", name, expression);
  return std::string(name);
}

DrawnFunction Draw::finish(const std::vector<std::string>& outputs) {
  function_.text += fmt::format("{}", fmt::join(outputs, ", "));
  return std::move(function_);
}

std::int64_t Draw::row_length() { return kRowLengths[below(std::ssize(kRowLengths))]; }

std::int64_t Draw::divisible_length(std::int64_t parts) {
  std::int64_t length = row_length();
  while (length % parts != 0) length = row_length();
  return length;
}

std::string activation(Draw& draw, const std::string& x) {
  constexpr const char* kForms[] = {"silu({})",
                                    "silu({})",
                                    "gelu_tanh({})",
                                    "gelu({})",
                                    "relu({})",
                                    "tanh({})",
                                    "sigmoid({})",
                                    "mish({})",
                                    "softplus({})",
                                    "hardswish({})",
                                    "quick_gelu({})",
                                    "squared_relu({})",
                                    "exp(-abs({}))",
                                    "leaky_relu({}, 0.1)",
                                    "tanh({} / 30.0) * 30.0",
                                    "clip({}, -2.0, 2.0)"};
  return fmt::format(fmt::runtime(kForms[draw.below(std::ssize(kForms))]), x);
}

std::string step(Draw& draw, const std::string& x, DType dtype, const Extents& extents, int label) {
  const std::string result = fmt::format("t{}", label);
  const Extents row = {extents.back()};
  Extents column = extents;
  column.back() = 1;
  const auto extra = [&](std::string_view kind, DType of, const Extents& shape,
                         RandomFloats values = RandomFloats::around_zero) {
    return draw.argument(fmt::format("{}{}", kind, label), of, shape, values);
  };
  switch (draw.below(9)) {
    case 0:
      return draw.let(result, fmt::format("{} + {}", x, extra("b", draw.weight_dtype(dtype), row)));
    case 1:
      return draw.let(result, fmt::format("{} * {}", x, extra("w", draw.weight_dtype(dtype), row)));
    case 2:
      return draw.let(result, fmt::format("{} * {}", x,
                                          extra("s", DType::f32, column, RandomFloats::positive)));
    case 3: return draw.let(result, fmt::format("{} + {}", x, extra("r", dtype, extents)));
    case 4: {
      const std::string gate = extra("g", dtype, extents);
      return draw.let(result, fmt::format("{} * {}", activation(draw, x), gate));
    }
    case 5:
      return draw.let(result,
                      fmt::format("where({}, {}, 0.0)", extra("m", DType::boolean, extents), x));
    case 6: return draw.let(result, fmt::format("{} * 0.0883883 + 0.5", x));
    default: return draw.let(result, activation(draw, x));
  }
}

std::string norm_input(Draw& draw, DType dtype, const Extents& extents) {
  const std::string x = draw.argument("x", dtype, extents);
  switch (draw.below(6)) {
    case 0: {
      const std::string r = draw.argument("r", dtype, extents);
      return draw.let("h", fmt::format("{} + {}", x, r));
    }
    case 1: {
      const std::string b = draw.argument("b", draw.weight_dtype(dtype), {extents.back()});
      const std::string r = draw.argument("r", dtype, extents);
      return draw.let("h", fmt::format("({} + {}) * 0.7071 + {}", x, b, r));
    }
    case 2: {
      const std::string g = draw.argument("g", dtype, extents);
      return draw.let("h", fmt::format("{} * {}", activation(draw, x), g));
    }
    default: return x;
  }
}

}  // namespace kiln::tool
