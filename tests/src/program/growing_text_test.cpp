// Sizes are parameters: lengths that grow take one kernel while the schedule stays, of every form
// of kernel. Texts of what is emitted for every kind of device; nothing is compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_specs.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "program/plan.hpp"

namespace kiln {
namespace {

/// A program whose argument shapes have -1 for what grows. An argument i or n is of i32.
struct Growing {
  std::string_view name;
  std::string_view text;
  std::vector<Dims> inputs;
  std::vector<std::int64_t> lengths;  ///< of one schedule on every target
  DType dtype = DType::f32;
};

const Growing kGrowing[] = {
    {"elements", "x * 2 + y", {{-1}, {-1}}, {40000, 44000, 70400}},
    {"broadcast", "x * 2 + y", {{-1, 64}, {64}}, {200, 344, 1000}},
    {"transposed", "transpose(x) * 2 + y", {{-1, 640}, {640, -1}}, {640, 1280, 1920}},
    {"index", "f32(iota(0)) * x", {{-1, 64}}, {200, 344, 1000}},
    {"random", "uniform(3, 0) + x", {{-1, 64}}, {200, 344, 1000}},
    {"packed", "f32(x) * 0.5", {{-1, 64}}, {200, 344, 1000}, DType::u4},
    {"rows", "softmax(x, -1)", {{-1, 512}}, {200, 344, 1000}},
    {"length of rows", "mean(x, -1) * 2", {{24, -1}}, {100352, 102400, 104448}},
    {"means of split rows", "mean(x, -1) * 2", {{1, -1}}, {66560, 69632, 73728}},
    {"sums of split rows", "sum(x, -1), argmax(x, -1)", {{1, -1}}, {66560, 69632, 73728}},
    {"split columns", "mean(x, 0)", {{-1, 32}}, {66560, 69632, 73728}},
    {"columns", "sum(x, 0)", {{-1, 4096}}, {4100, 4224, 4352}},
    {"rows of columns", "mean(x, 1)", {{-1, 512, 256}}, {20, 24, 28}},
    {"running results", "cumsum(x, -1)", {{-1, 1024}}, {200, 344, 1000}},
    {"running columns", "cumsum(x, 0)", {{-1, 512}}, {200, 344, 1000}},
    {"products", "sum(w * x, -1)", {{-1, 1024}, {1024}}, {256, 512, 768}, DType::bf16},
    {"attention",
     "sum(softmax(sum(q * k, -1) * 0.1, -2) * v, -2)",
     {{1, 4, 1, 64}, {1, 1, -1, 64}, {1, 1, -1, 64}},
     {70, 90, 127}},
    {"attention in parts",
     "sum(softmax(sum(q * k, -1) * 0.1, -2) * v, -2)",
     {{1, 4, 1, 64}, {1, 1, -1, 64}, {1, 1, -1, 64}},
     {600, 700, 800}},
    {"attention over pages",
     "t = swapaxes(reshape(take(k, i), 0, -1, 2, 64), 1, 2)[:, :, None]; "
     "u = swapaxes(reshape(take(v, i), 0, -1, 2, 64), 1, 2)[:, :, None]; "
     "sum(softmax(sum(q * t, -1) * 0.1, -2) * u, -2)",
     {{50, 16, 2, 64}, {1, -1}, {50, 16, 2, 64}, {1, 2, 4, 1, 64}},
     {38, 44, 50}},
    {"rows that are taken", "take(x, i) * 2", {{-1, 64}, {-1}}, {200, 344, 1000}},
    {"rows that are put", "put(x, i, y)", {{-1, 64}, {8}, {8, 64}}, {200, 344, 1000}},
    {"rows that end", "sum(x[:, :n], -1)", {{-1, 512}, {-1, 1}}, {200, 344, 1000}},
    {"joined", "concat(0, x * 2, y + 1)", {{-1, 64}, {16, 64}}, {200, 344, 1000}},
    {"parts", "x[:, 1:] - x[:, :-1]", {{-1, 64}}, {200, 344, 1000}},
};

std::vector<std::string> texts_of(const Growing& growing, std::int64_t length,
                                  std::string_view target) {
  const Definition definition{"f", fusion::parse(growing.text), Options(),
                              std::string(growing.text)};
  CallTypes call;
  for (std::size_t i = 0; i < growing.inputs.size(); ++i) {
    const std::string& name = definition.graph.arguments()[i];
    const DType dtype = name == "i" || name == "n" ? DType::i32 : growing.dtype;
    Dims shape = growing.inputs[i];
    for (std::int64_t& extent : shape) extent = extent == -1 ? length : extent;
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  std::vector<std::string> texts;
  for (const KernelSpec& spec : step_specs(plan_program(definition, call), call)) {
    texts.push_back(emit_kernel(spec, target).request.text);
  }
  return texts;
}

TEST(GrowingLengths, TakeOneText) {
  for (const Growing& growing : kGrowing) {
    for (const std::string_view target : {"cpu", "gfx90a", "gfx1100", "sm_90"}) {
      const std::vector<std::string> texts = texts_of(growing, growing.lengths[0], target);
      EXPECT_FALSE(texts.empty()) << growing.name;
      for (const std::int64_t length : growing.lengths) {
        EXPECT_EQ(texts_of(growing, length, target), texts)
            << growing.name << " of " << length << " on " << target;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
