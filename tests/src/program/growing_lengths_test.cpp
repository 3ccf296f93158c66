// Calls and runs of lengths that grow, as those of an engine that generates: after a while their
// kernels are launched by tapes (kernel/kernel_tape.hpp), and next to none is planned.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "call/class_kernel.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

/// A function or program of arrays; -1 in shapes stands for a length.
struct GrowingForm {
  std::string_view name;
  std::string_view text;
  std::vector<Dims> inputs;
  Dims output;
  bool is_program = false;
  std::vector<std::string> names{};  ///< of a function's arguments
  bool is_simple = false;            ///< elements alone
  std::vector<DType> dtypes{};       ///< of inputs; those that are left out are f32
};

const GrowingForm kGrowingForms[] = {
    {"elements", "a * 2 + b", {{-1}, {-1}}, {-1}, false, {"a", "b"}, true},
    {"matrices", "a * 2 + b", {{-1, 64}, {-1, 64}}, {-1, 64}, false, {"a", "b"}, true},
    {"broadcast", "a * 2 + b", {{16, -1}, {-1}}, {16, -1}, false, {"a", "b"}},
    {"transposed", "transpose(a) * b", {{-1, 24}, {24, -1}}, {24, -1}, true},
    {"rows", "softmax(a, -1) * b", {{16, -1}, {-1}}, {16, -1}, false, {"a", "b"}},
    {"sums", "sum(a * b, -1)", {{16, -1}, {16, -1}}, {16, 1}, false, {"a", "b"}},
    {"products", "sum(a * b, -1)", {{64, -1}, {-1}}, {64, 1}, false, {"a", "b"}},
    {"columns", "a / sum(a, 0)", {{-1, 64}}, {-1, 64}, false, {"a"}},
    {"scan", "cumsum(a, -1) + b", {{16, -1}, {-1}}, {16, -1}, false, {"a", "b"}},
    {"iota", "where(iota(1) > iota(0), a, 0) + f32(iota())", {{-1, 64}}, {-1, 64}, false, {"a"}},
    {"attention",
     "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)",
     {{2, 4, 1, 16}, {2, 1, -1, 16}, {2, 1, -1, 16}},
     {2, 4, 1, 16},
     false,
     {"q", "k", "v"}},
    {"masked attention",
     "sum(softmax(where(iota(-2) < 40, sum(q * k, -1), -inf), -2) * v, -2)",
     {{2, 3, 1, 16}, {2, 1, -1, 16}, {2, 1, -1, 16}},
     {2, 3, 1, 16},
     false,
     {"q", "k", "v"}},
    {"program of two", "y = x / sum(x, 0); y / sum(y, 1)", {{-1, 64}}, {-1, 64}, true},
    {"program of four",
     "a = softmax(x, -1); b = softmax(a * 3, 0); c = b - mean(b, -1); c / sum(c, 0)",
     {{-1, 64}},
     {-1, 64},
     true},
    {"attention in a program",
     "a = sum(softmax(sum(q * k, -1) * 0.25, -2) * v, -2); a / (1 + sum(a * a, -1))",
     {{1, 3, 1, 16}, {1, 1, -1, 16}, {1, 1, -1, 16}},
     {1, 3, 1, 16},
     true},
    {"packed elements",
     "f32(a) * s + 0.5",
     {{-1, 64}, {64}},
     {-1, 64},
     true,
     {},
     false,
     {DType::u4}},
    {"packed products of a batch",
     "y = sum(f32(w) * x, -1); y / (1 + sum(abs(y), 1))",
     {{48, 64}, {-1, 1, 64}},
     {-1, 48, 1},
     true,
     {},
     false,
     {DType::u4}},
    {"groups of packed products",
     "y = sum(sum(f32(reshape(w, 0, -1, 32)) * x, -1) * s, -2); y * 2",
     {{-1, 64}, {2, 32}, {-1, 2, 1}},
     {-1, 1, 1},
     true,
     {},
     false,
     {DType::i4}},
    {"packed rows",
     "y = softmax(f32(x), -1); y / sum(y, 0)",
     {{-1, 64}},
     {-1, 64},
     true,
     {},
     false,
     {DType::u4}},
};

/// As of a model of so many layers, each with weights of its own: two kernels each.
std::string layers(int count) {
  std::string text = "x0 = x";
  for (int i = 0; i < count; ++i) {
    text += fmt::format("; s{0} = softmax(x{0} * w{0}, -1); x{1} = s{0} / sum(s{0}, 0) + x{0}", i,
                        i + 1);
  }
  return text + fmt::format("; x{}", count);
}

class GrowingLengths : public testing::DeviceTest {
 protected:
  static constexpr std::int64_t kLengths = 1000;
  static constexpr std::int64_t kFloats = 1 << 18;
};

TEST_P(GrowingLengths, PlanNextToNothing) {
  std::vector<float*> memories;
  for (int i = 0; i < 4; ++i) memories.push_back(zeros(kFloats));
  float* const workspace = zeros(kFloats);
  // The driver made for tests compiles single vectors alone, and no rows.
  const bool whole = testing::is_host_driver(*backend);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const GrowingForm& form : kGrowingForms) {
    if (!share.next()) continue;
    if (whole && !form.is_simple) continue;
    const Function f =
        form.is_program ? parse("f", form.text) : parse("f", form.text, {}, form.names);
    const Program p = program(f);
    const auto of = [&](std::size_t which, Dims shape, std::int64_t length) {
      for (std::int64_t& size : shape) size = size == -1 ? length * (whole ? 4 : 1) : size;
      const DType dtype = which < form.dtypes.size() ? form.dtypes[which] : DType::f32;
      return View(memories[which], dtype, shape, device);
    };
    const auto call = [&](std::int64_t length) {
      std::vector<Argument> in;
      for (std::size_t i = 0; i < form.inputs.size(); ++i) {
        in.emplace_back(of(i, form.inputs[i], length));
      }
      const View out = of(3, form.output, length);
      if (!form.is_program) return f.call(stream, in, {&out, 1});
      p.run(stream, in, {&out, 1}, View(workspace, DType::u8, {4 * kFloats}, device));
    };
    for (std::int64_t length = 2; length < kLengths / 2; ++length) call(length);
    const std::uint64_t before = planned_launches();
    for (std::int64_t length = kLengths / 2; length < kLengths; ++length) call(length);
    backend->synchronize(stream);
    const std::uint64_t planned = planned_launches() - before;
    // Rows of a GPU have a schedule for each few vectors more.
    EXPECT_LE(planned, kLengths / 2 / (on_gpu() ? 10 : 50)) << form.name;
  }
}

// Each of their steps has a tape, and the tapes have room. Columns of all these lengths have one
// schedule on GPUs too.
TEST_P(GrowingLengths, OfManyKernelsPlanNextToNothing) {
  if (testing::is_host_driver(*backend)) GTEST_SKIP() << "no rows on " << backend->name();
  float* const x = zeros(kFloats);
  float* const w = zeros(64);
  float* const out = zeros(kFloats);
  float* const workspace = zeros(4 * kFloats);
  for (const int count : {6, 30, 300}) {
    const Program p = parse_program("layers", layers(count));
    std::size_t kernels = 0;
    const auto run = [&](std::int64_t rows) {
      std::vector<Argument> in(static_cast<std::size_t>(count) + 1,
                               View(w, DType::f32, {16}, device));
      in[0] = View(x, DType::f32, {rows, 16}, device);
      const View result(out, DType::f32, {rows, 16}, device);
      if (kernels == 0) kernels = p.explain(stream, in, {&result, 1}).kernels.size();
      p.run(stream, in, {&result, 1}, View(workspace, DType::u8, {16 * kFloats}, device));
    };
    for (std::int64_t rows = 515; rows < 565; ++rows) run(rows);
    EXPECT_GT(kernels, static_cast<std::size_t>(count));
    const std::uint64_t plans = statistics(device).plans;
    const std::uint64_t before = planned_launches();
    for (std::int64_t rows = 565; rows < 635; ++rows) run(rows);
    EXPECT_EQ(statistics(device).plans, plans) << count;
    EXPECT_LE(planned_launches() - before, 3 * kernels) << "of 70 runs of so many kernels";
    backend->synchronize(stream);
  }
}

KILN_ON_EVERY_DEVICE(GrowingLengths);

}  // namespace
}  // namespace kiln
