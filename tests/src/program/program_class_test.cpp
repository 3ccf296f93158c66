// Runs of programs with shapes that were never seen but whose class is known: the bits and the
// workspace are those of a fresh program's plan, the errors too, and nothing is kept.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

/// A program of arrays; -1, -2 and -3 in shapes stand for sizes, 100 and more for products of such:
/// 102 is the first times the second.
struct Form {
  std::string_view name;
  std::string_view text;
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  bool scalar = false;          ///< one more argument, the last
  int least_known = 12;         ///< of 24 shapes
  std::vector<DType> dtypes{};  ///< of inputs, then outputs; those that are left out are f32
  DType dtype(std::size_t operand) const {
    return operand < dtypes.size() ? dtypes[operand] : DType::f32;
  }
};

const Form kForms[] = {
    {"normalised",
     "(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * w + b",
     {{-1, -2}, {-2}, {-2}},
     {{-1, -2}}},
    {"columns_and_rows", "y = x / sum(x, 0); y / sum(y, 1)", {{-1, -2}}, {{-1, -2}}},
    {"several_axes",
     "sum(x * y, 0, 2) + mean(y, 0, 2)",
     {{-1, -2, -3}, {-1, -2, -3}},
     {{1, -2, 1}}},
    {"left_out", "sum(exp(x), 1, 2) * s", {{-1, -2, -3}}, {{-1}}, true},
    {"softmax_of_columns", "softmax(x * s, 0) + y", {{-1, -2}, {-1, -2}}, {{-1, -2}}, true},
    {"transposed", "t = transpose(x); t * 2 + sum(t, -1)", {{-1, -2}}, {{-2, -1}}},
    {"merged", "reshape(x + y, -1) * 2", {{-1, -2}, {-1, -2}}, {{102}}},
    {"reshaped_sum", "sum(reshape(x, 0, -1), -1) * 2", {{-1, -2, -3}}, {{-1, 1}}},
    {"joined", "concat(0, x * 2, y + 1) / (1 + sum(x, 0))", {{-1, -2}, {-3, -2}}, {{-4, -2}}},
    {"halves",
     "u = x[:, 0:64]; v = x[:, 64:128]; u / (1 + exp(-v)) + mean(u, -1)",
     {{-1, 128}},
     {{-1, 64}}},
    {"outputs",
     "m = max(x, -1); e = exp(x - m); e / sum(e, -1), m, sum(e, 0)",
     {{-1, -2}},
     {{-1, -2}, {-1, 1}, {1, -2}}},
    {"scan", "c = cumsum(x, -1); c / (1 + sum(abs(x), 0))", {{-1, -2}}, {{-1, -2}}},
    {"random_like", "f32(iota(1)) * x + sum(x * f32(iota(0)), 0)", {{-1, -2}}, {{-1, -2}}},
    {"rows_of_products",
     "h = x * w; k = sum(h, -1); sum(k * k, 0) + h",
     {{-1, -2}, {-2}},
     {{-1, -2}}},
    {"interleaved",
     "a = x[..., 0::2]; b = x[..., 1::2]; reshape(stack(-1, a * c - b * s, a * s + b * c), 0, -1)",
     {{-1, 128}, {-1, 64}, {-1, 64}},
     {{-1, 128}}},
    {"chain",
     "a = softmax(x, -1); b = softmax(a * 3, 0); c = b - mean(b, -1); c * s",
     {{-1, -2}},
     {{-1, -2}},
     true},
    {"many_kernels",
     "a = softmax(x, -1); b = a / sum(a, 0) + x; c = softmax(b * s, -1); d = c / sum(c, 0) + b;"
     "e = softmax(d, -1); f = e / sum(e, 0) + d; g = softmax(f * s, -1); h = g / sum(g, 0) + f;"
     "i = softmax(h, -1); j = i / sum(i, 0) + h; k = softmax(j * s, -1); l = k / sum(k, 0) + j;"
     "l / (1 + sum(l * l, 0))",
     {{-1, -2}},
     {{-1, -2}},
     true},
    {"attention",
     "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)",
     {{2, 4, 1, 16}, {2, 1, -2, 16}, {2, 1, -2, 16}},
     {{2, 4, 1, 16}}},
    {"attention_in_a_row",
     "a = sum(softmax(sum(q * k, -1) * 0.25, -2) * v, -2); a / (1 + sum(a * a, -1))",
     {{1, 3, 1, 16}, {1, 1, -1, 16}, {1, 1, -1, 16}},
     {{1, 3, 1, 16}}},
    {"packed_elements",
     "u4(f32(a) * 0.7 + x)",
     {{-1, 64}, {-1, 64}},
     {{-1, 64}},
     false,
     12,
     {DType::u4, DType::f32, DType::u4}},
    {"packed_products",
     "y = sum(f32(w) * x, -1); y / (1 + sum(abs(y), 1))",
     {{-2, 64}, {-1, 1, 64}},
     {{-1, -2, 1}},
     false,
     12,
     {DType::i4}},
    {"packed_groups",
     "y = sum(sum(f32(reshape(w, 0, -1, 32)) * x, -1) * s, -2); y / (1 + sum(abs(y), 0))",
     {{-2, 64}, {2, 32}, {-2, 2, 1}},
     {{-2, 1, 1}},
     false,
     12,
     {DType::u4}},
    {"packed_rows",
     "y = softmax(f32(x), -1); y / sum(y, 0)",
     {{-1, -2}},
     {{-1, -2}},
     false,
     12,
     {DType::u4}},
    {"packed_parts",
     "concat(0, x, y), f32(x[:, 2:]) * 2",
     {{-1, 64}, {-3, 64}},
     {{-4, 64}, {-1, 62}},
     false,
     12,
     {DType::i4, DType::i4, DType::i4}},
};

/// A program of which the arguments i and n are integers; its first output may be its argument x.
struct PlacedForm {
  std::string_view text;
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  bool updates = false;
};

const PlacedForm kPlacedForms[] = {
    {"y = take(x, i) * w; y / (1 + sum(y, 0))", {{-1, -2}, {7}, {-2}}, {{7, -2}}},
    {"softmax(take(x, i, 1), -1) + sum(x, 1)", {{-1, -2}, {9}}, {{-1, 9}}},
    {"h = softmax(y * 2, -1); put(x, i, h / (1 + sum(h, 0))), sum(h, 0)",
     {{5, -2}, {-1, -2}, {5}},
     {{-1, -2}, {1, -2}},
     true},
    {"y = x[:, :n] * 2; y - sum(y, -1)", {{-1, -2}, {-1, 1}}, {{-1, -2}}},
    {"y = exp(x[:n]); y / (1 + sum(y, -1))", {{-1, -2}, {1, 1}}, {{-1, -2}}},
    {"t = swapaxes(reshape(take(k, i), 0, -1, 2, 16), 1, 2)[:, :, None]; "
     "u = swapaxes(reshape(take(v, i), 0, -1, 2, 16), 1, 2)[:, :, None]; "
     "sum(softmax(sum(q * t, -1) * 0.2, -2) * u, -2)",
     {{9, 16, 2, 16}, {2, -2}, {9, 16, 2, 16}, {2, 2, 3, 1, 16}},
     {{2, 2, 3, 1, 16}}},
};

class ProgramClasses : public testing::DeviceTest {
 protected:
  static constexpr std::int64_t kElements = 1 << 18;

  void SetUp() override {
    DeviceTest::SetUp();
    if (backend == nullptr) return;
    std::mt19937 random(7);
    std::vector<float> values(kElements);
    for (float& value : values) value = std::uniform_real_distribution<float>(0.5f, 2)(random);
    for (float*& input : inputs) input = allocate(values);
    std::vector<float> bits(1024);  // of integers from -1 on
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = std::bit_cast<float>(static_cast<std::int32_t>(i * 7 % 60) - 1);
    }
    places = allocate(bits);
    by_class = zeros(kElements);
    by_plan = zeros(kElements);
    scratch = zeros(2 * kElements);
  }

  View view(float* data, Dims shape, DType dtype = DType::f32) const {
    return {data, dtype, std::move(shape), device};
  }
  View workspace(std::size_t bytes) const {
    return {scratch, DType::u8, {static_cast<std::int64_t>(bytes)}, device};
  }
  std::uint64_t plans() const { return statistics(device).plans; }

  static Dims shape_of(const Dims& form, std::span<const std::int64_t> sizes) {
    Dims shape = form;
    for (std::int64_t& size : shape) {
      if (size == 102) {
        size = sizes[0] * sizes[1];
      } else if (size == -4) {
        size = sizes[0] + sizes[2];
      } else if (size < 0) {
        size = sizes[static_cast<std::size_t>(-size - 1)];
      }
    }
    return shape;
  }

  std::vector<Argument> arguments_of(const Form& form, std::span<const std::int64_t> sizes) const {
    std::vector<Argument> arguments;
    for (std::size_t i = 0; i < form.inputs.size(); ++i) {
      arguments.emplace_back(view(inputs[i], shape_of(form.inputs[i], sizes), form.dtype(i)));
    }
    if (form.scalar) arguments.emplace_back(0.25 * static_cast<double>(sizes[0]));
    return arguments;
  }

  std::vector<View> outputs_of(const Form& form, std::span<const std::int64_t> sizes,
                               float* data) const {
    std::vector<View> outputs;
    for (const Dims& output : form.outputs) {
      const DType dtype = form.dtype(form.inputs.size() + outputs.size());
      outputs.push_back(view(data, shape_of(output, sizes), dtype));
      data += (outputs.back().size() + 15) / 16 * 16;
    }
    return outputs;
  }

  std::vector<Argument> arguments_of(const PlacedForm& form, const Program& program,
                                     std::span<const std::int64_t> sizes, float* updated) const {
    std::vector<Argument> arguments;
    for (const std::string& name : argument_names(program)) {
      const Dims shape = shape_of(form.inputs[arguments.size()], sizes);
      if (name == "i" || name == "n") {
        arguments.emplace_back(View(places, DType::i32, shape, device));
      } else {
        float* const own = inputs.at(arguments.size() % inputs.size());
        arguments.emplace_back(view(form.updates && name == "x" ? updated : own, shape));
      }
    }
    return arguments;
  }

  /// Runs `known`, which may know the class, and a fresh program; whether `known` made a plan.
  bool makes_plan(const Program& known, const Form& form, std::span<const std::int64_t> sizes) {
    const std::vector<Argument> in = arguments_of(form, sizes);
    const std::vector<View> out = outputs_of(form, sizes, by_class);
    const std::uint64_t before = plans();
    const std::size_t bytes = known.workspace_bytes(stream, in, out);
    known.run(stream, in, out, workspace(bytes));
    const bool made = plans() != before;
    const Program fresh = parse_program(form.name, form.text);
    const std::vector<View> want = outputs_of(form, sizes, by_plan);
    EXPECT_EQ(fresh.explain(stream, in, want).workspace_bytes, bytes);
    Launch launch = fresh.bind(stream, in, want, workspace(bytes));
    launch(stream);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto count = static_cast<std::size_t>(out[i].size());
      const std::vector<float> got = read(static_cast<const float*>(out[i].data()), count);
      const std::vector<float> expected = read(static_cast<const float*>(want[i].data()), count);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), count * sizeof(float)), 0)
          << form.name << ", output " << i << " of " << sizes[0] << ", " << sizes[1] << ", "
          << sizes[2];
    }
    return made;
  }

  std::array<float*, 3> inputs{};
  float* places = nullptr;  ///< of i32
  float* by_class = nullptr;
  float* by_plan = nullptr;
  float* scratch = nullptr;
};

TEST_P(ProgramClasses, BitsAndWorkspaceAreThoseOfAFreshProgram) {
  std::mt19937 random(11);
  const auto size = [&](int least, int most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const Form& form : kForms) {
    if (!share.next()) continue;
    const Program known = parse_program(form.name, form.text);
    int without_plan = 0;
    for (int turn = 0; turn < 24; ++turn) {
      const bool three = form.inputs[0].size() == 3;
      const std::int64_t sizes[] = {size(2, three ? 30 : 90),
                                    three ? size(31, 50) : 256 + 4 * size(1, 90), size(51, 66)};
      if (!makes_plan(known, form, sizes)) ++without_plan;
      if (HasFailure()) return;
    }
    // GPUs keep rows and columns on chip by more schedules, each with a kernel of its own.
    const int least = GetParam() == DeviceType::cpu ? form.least_known : 1;
    EXPECT_GE(without_plan, least) << form.name;
  }
}

// From sizes at which rows are short to those at which reductions are split and values leave the
// caches: there a form ends, and another begins.
TEST_P(ProgramClasses, WhereWhatIsFusedDependsOnSizes) {
  std::mt19937 random(3);
  const Form form{"f", "y = x * 2; sum(y, -1) + max(x, -1) + mean(x, -1)", {{-1, -2}}, {{-1, 1}}};
  const Program known = parse_program(form.name, form.text);
  int without_plan = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const auto power = std::uniform_int_distribution<int>(4, 16)(random);
    const std::int64_t length = (1 << power) + std::uniform_int_distribution<int>(0, 99)(random);
    const std::int64_t sizes[] = {2 + turn % 2, length, 0};
    if (!makes_plan(known, form, sizes)) ++without_plan;
    if (HasFailure()) return;
  }
  EXPECT_GT(without_plan, 20);
}

TEST_P(ProgramClasses, OfPlacesAndEndsThatDataSays) {
  std::mt19937 random(17);
  const auto size = [&](int most) { return std::uniform_int_distribution<int>(2, most)(random); };
  for (const PlacedForm& form : kPlacedForms) {
    const Program known = parse_program("placed", form.text);
    int without_plan = 0;
    for (int turn = 0; turn < 24; ++turn) {
      const std::int64_t sizes[] = {100 + size(60), 256 + 4 * size(30), 0};
      const auto outputs_of = [&](float* data) {
        std::vector<View> outputs;
        for (const Dims& output : form.outputs) {
          outputs.push_back(view(data, shape_of(output, sizes)));
          data += kElements / 2;
        }
        return outputs;
      };
      const std::vector<Argument> in = arguments_of(form, known, sizes, by_class);
      const std::vector<View> out = outputs_of(by_class);
      const std::uint64_t before = plans();
      const std::size_t bytes = known.workspace_bytes(stream, in, out);
      known.run(stream, in, out, workspace(bytes));
      if (plans() == before) ++without_plan;
      const Program fresh = parse_program("placed", form.text);
      const std::vector<Argument> same = arguments_of(form, fresh, sizes, by_plan);
      Launch launch = fresh.bind(stream, same, outputs_of(by_plan), workspace(bytes));
      launch(stream);
      ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements))
          << form.text << " of " << sizes[0] << " and " << sizes[1];
    }
    const int least = GetParam() == DeviceType::cpu ? 12 : 1;
    EXPECT_GE(without_plan, least) << form.text;
  }
}

TEST_P(ProgramClasses, StridesAreNumbersToo) {
  const Program known = parse_program("f", "y = x - mean(x, -1); y / (1 + sum(abs(y), 0))");
  std::mt19937 random(5);
  const auto upto = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  int without_plan = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const std::int64_t rows = 20 + upto(20), columns = 200 + upto(50);
    const auto matrix = [&](float* data, std::int64_t gap) {
      return View(data, DType::f32, {rows, columns}, {columns + gap, 1}, device);
    };
    const Argument in[] = {matrix(inputs[0], 8 + 4 * upto(4))};
    const View out = matrix(by_class, 16 + 4 * upto(2));
    const std::uint64_t before = plans();
    const std::size_t bytes = known.workspace_bytes(stream, in, {&out, 1});
    known.run(stream, in, {&out, 1}, workspace(bytes));
    if (plans() == before) ++without_plan;
    const Program fresh = parse_program("f", known.expression());
    const View want = out.with_data(by_plan);
    Launch launch = fresh.bind(stream, in, {&want, 1}, workspace(bytes));
    launch(stream);
    ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements)) << turn;
  }
  EXPECT_GT(without_plan, 15);
}

// Columns that lie one after the other, until there are gaps between them.
TEST_P(ProgramClasses, GapsAreNoNumbersOfCallsWithoutThem) {
  const Program known = parse_program("f", "x * 2 + y");
  for (int turn = 0; turn < 12; ++turn) {
    const std::int64_t rows = 40 + turn, columns = 200 - turn;
    const std::int64_t gap = turn < 4 ? 0 : 4 * (turn % 3);
    const View turned(inputs[0], DType::f32, {rows, columns}, {1, rows + gap}, device);
    const Argument in[] = {turned, view(inputs[1], {rows, columns})};
    const View out = view(by_class, {rows, columns});
    known.run(stream, in, {&out, 1}, {});
    const Program fresh = parse_program("f", known.expression());
    const View want = view(by_plan, {rows, columns});
    Launch launch = fresh.bind(stream, in, {&want, 1}, {});
    launch(stream);
    ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements)) << turn;
  }
}

// Axes of which each follows the one before in memory, in one order and in another.
TEST_P(ProgramClasses, OrdersInMemoryAreOfTheirOwn) {
  const Program known = parse_program("f", "y = x * 2 + z; y / (1 + sum(y, 1))");
  int without_plan = 0;
  for (int turn = 0; turn < 24; ++turn) {
    const std::int64_t a = 11 + turn, b = 40 + 4 * turn, c = 17 + turn % 5;
    const Dims shape{a, b, c};
    const Dims strides = turn % 2 == 0 ? Dims{1, a, a * b} : Dims{1, a * c, a};
    const View turned(inputs[0], DType::f32, shape, strides, device);
    const Argument in[] = {turned, view(inputs[1], shape)};
    const View out = view(by_class, shape);
    const std::uint64_t before = plans();
    const std::size_t bytes = known.workspace_bytes(stream, in, {&out, 1});
    known.run(stream, in, {&out, 1}, workspace(bytes));
    if (plans() == before) ++without_plan;
    const View want = view(by_plan, shape);
    Launch launch =
        parse_program("f", known.expression()).bind(stream, in, {&want, 1}, workspace(bytes));
    launch(stream);
    ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements)) << turn;
  }
  EXPECT_GE(without_plan, GetParam() == DeviceType::cpu ? 9 : 1);
}

// What joins the parts of keys is planned once for each way in which its operands are aligned.
TEST_P(ProgramClasses, KernelsThatNoSizeChangesToo) {
  const Program known = parse_program("p", "sum(softmax(sum(q * k, -1) * 0.1, -2) * v, -2)");
  const auto run = [&](const Program& program, std::int64_t length, std::int64_t shift,
                       float* data) {
    const Dims query{2, 4, 1, 16};
    const Dims keys{2, 1, length, 16};
    const Argument in[] = {view(inputs[0] + shift, query), view(inputs[1], keys),
                           view(inputs[2], keys)};
    const View out = view(data + shift, query);
    program.run(stream, in, {&out, 1}, workspace(1 << 20));
    return read(data + shift, static_cast<std::size_t>(out.size()));
  };
  for (std::int64_t length = 300; length < 304; ++length) {
    for (const std::int64_t shift : {0, 4}) run(known, length, shift, by_class);
  }
  int by_known_kernels = 0;
  for (const std::int64_t shift : {0, 4, 1, 64, 68, 7, 2}) {
    for (std::int64_t length = 310; length < 314; ++length) {
      const std::uint64_t planned = plans();
      const std::vector<float> got = run(known, length, shift, by_class);
      by_known_kernels += plans() == planned ? 1 : 0;
      EXPECT_EQ(got, run(parse_program("q", "sum(softmax(sum(q * k, -1) * 0.1, -2) * v, -2)"),
                         length, shift, by_plan))
          << length << ", " << shift;
    }
  }
  EXPECT_GE(by_known_kernels, 8);
}

TEST_P(ProgramClasses, NothingIsKept) {
  const Form form{"f", "a = softmax(x, -1); a / sum(a, 0)", {{-1, -2}}, {{-1, -2}}};
  const Program program = parse_program(form.name, form.text);
  const auto run = [&](std::int64_t rows, std::int64_t columns) {
    const std::int64_t sizes[] = {rows, columns, 0};
    const std::vector<Argument> in = arguments_of(form, sizes);
    const std::vector<View> out = outputs_of(form, sizes, by_class);
    program.run(stream, in, out, workspace(program.workspace_bytes(stream, in, out)));
  };
  const int count = on_gpu() ? 200 : 5000;
  const auto run_all = [&](int shapes) {
    for (int i = 0; i < shapes; ++i) run(2 + i % 100, 128 + 4 * (i / 100));
  };
  run_all(count / 100);
  run_all(count);
  run_all(count);  // the first time, some are run by a form that a wider one takes the place of
  const Statistics before = statistics(device);
  run_all(count);
  const Statistics after = statistics(device);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.plan_bytes, before.plan_bytes);
  EXPECT_EQ(after.plans_dropped, before.plans_dropped);
  EXPECT_LT(after.plans, 200u);
}

// A form takes sizes that have not changed for constants; when one does, the next form leaves it
// open.
TEST_P(ProgramClasses, ASizeThatChangesLaterIsOpenFromThenOn) {
  if (on_gpu()) GTEST_SKIP() << "other numbers of rows have other schedules there";
  const Form form{"f", "y = x / sum(x, -1); y - max(y, 0)", {{-1, -2}}, {{-1, -2}}};
  const Program known = parse_program(form.name, form.text);
  const auto planned = [&](std::int64_t rows, std::int64_t columns) {
    const std::int64_t sizes[] = {rows, columns, 0};
    return makes_plan(known, form, sizes);
  };
  EXPECT_TRUE(planned(20, 256));
  EXPECT_TRUE(planned(20, 260)) << "the second one makes the class";
  for (int i = 2; i < 20; ++i) EXPECT_FALSE(planned(20, 256 + 4 * i)) << i;
  EXPECT_TRUE(planned(24, 300)) << "the form has 20 rows";
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(planned(30 + i, 400 + 4 * i)) << i;
}

TEST_P(ProgramClasses, AShapeThatIsRunOftenGetsAPlan) {
  const Form form{"f", "x / sum(x, 0) + sum(x, 1)", {{-1, -2}}, {{-1, -2}}};
  const Program program = parse_program(form.name, form.text);
  const auto run = [&](std::int64_t rows) {
    const std::int64_t sizes[] = {rows, 256, 0};
    const std::vector<Argument> in = arguments_of(form, sizes);
    const std::vector<View> out = outputs_of(form, sizes, by_class);
    program.run(stream, in, out, workspace(program.workspace_bytes(stream, in, out)));
  };
  run(50);
  run(55);  // the second one makes the class
  const std::uint64_t before = plans();
  for (int i = 0; i < 200; ++i) run(60);
  EXPECT_EQ(plans(), before);
  for (int i = 0; i < 100; ++i) run(60);
  EXPECT_GT(plans(), before);
}

// The same words for a class that is known as for one that is not.
TEST_P(ProgramClasses, ErrorsAreThoseOfAFreshProgram) {
  const auto make = [] {
    return parse_program("f", "r = reshape(x, -1, 8); y = softmax(r * w, -1); y / sum(y, 0)");
  };
  const Program known = make();
  const auto run = [&](const Program& program, std::int64_t rows, std::int64_t columns,
                       const View& out, std::size_t bytes) {
    const Argument in[] = {view(inputs[0], {rows, columns}), view(inputs[1], {8})};
    program.run(stream, in, {&out, 1}, workspace(bytes));
  };
  const std::size_t enough = kElements;
  run(known, 20, 16, view(by_class, {40, 8}), enough);
  run(known, 24, 32, view(by_class, {96, 8}), enough);
  struct Case {
    std::int64_t rows, columns;
    View output;
    std::size_t bytes;
  };
  const Case cases[] = {
      {21, 20, view(by_class, {52, 8}), enough},  // 420 elements do not divide by 8
      {21, 24, view(by_class, {62, 8}), enough},
      {21, 24, view(by_class, {63, 9}), enough},
      {21, 24, view(nullptr, {63, 8}), enough},
      {21, 24, view(by_class, {63, 8}), 4},
      {21, 24, View(by_class, DType::f32, {63, 8}, {0, 1}, device), enough},
      {21, 24, view(inputs[0] + 5, {63, 8}), enough},
      {21, 24, view(scratch, {63, 8}), enough},
  };
  for (const Case& one : cases) {
    const auto error = [&](const Program& program) {
      return testing::error_of([&] { run(program, one.rows, one.columns, one.output, one.bytes); });
    };
    EXPECT_EQ(error(known), error(make()));
    EXPECT_NE(error(known), "no error") << &one - cases;
  }
}

// Places of packed elements have to be whole bytes.
TEST_P(ProgramClasses, PlacesWithinAByteAreErrors) {
  const Program known =
      parse_program("p", "put(x, i, u4(softmax(f32(y), -1) * 9)), sum(f32(y), 1)");
  const auto run = [&](std::int64_t size) {
    const View x = view(by_class, {32, size}, DType::u4);
    const Argument in[] = {x, View(places, DType::i32, {5}, device),
                           view(inputs[0], {5, size}, DType::u4)};
    const View out[] = {x, view(by_plan, {5, 1})};
    known.run(stream, in, out, workspace(1 << 20));
  };
  for (std::int64_t size = 64; size < 96; size += 2) run(size);
  const std::uint64_t before = plans();
  for (std::int64_t size = 96; size < 128; size += 2) run(size);
  EXPECT_LT(plans() - before, GetParam() == DeviceType::cpu ? 8U : 17U);
  for (std::int64_t size = 65; size < 128; size += 2) {
    try {
      run(size);
      FAIL() << "no error for " << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("whole bytes"), std::string::npos) << error.what();
    }
  }
}

TEST_P(ProgramClasses, IndicesThatDoNotFitTheirDtypeAreErrors) {
  const Program program = parse_program("f", "f32(iota(0, u8)) * x");
  const auto run = [&](std::int64_t rows) {
    const Argument in[] = {view(inputs[0], {rows, 20})};
    const View out = view(by_class, {rows, 20});
    return testing::error_of([&] { program.run(stream, in, {&out, 1}, {}); });
  };
  EXPECT_EQ(run(40), "no error");
  EXPECT_EQ(run(60), "no error");
  EXPECT_EQ(run(256), "no error");
  EXPECT_NE(run(257), "no error");
}

// What the caller's own shape functions say is not known for other sizes.
TEST_P(ProgramClasses, CallsOfTheCallerArePlannedForEachShape) {
  const LibraryCall copy{"copy", [](std::span<const DType> in) { return std::vector{in[0]}; },
                         [](std::span<const Dims> in) { return std::vector{in[0]}; },
                         [](const Stream&, std::span<const View>, std::span<const View>) {}};
  const Program program =
      trace_program("p", [&](Value x) { return kiln::call(copy, {x * 2}) + 1; });
  for (std::int64_t rows = 20; rows < 24; ++rows) {
    const Argument in[] = {view(inputs[0], {rows, 300})};
    const View out = view(by_class, {rows, 300});
    const std::uint64_t before = plans();
    program.run(stream, in, {&out, 1}, workspace(program.workspace_bytes(stream, in, {&out, 1})));
    EXPECT_GT(plans(), before);
  }
}

KILN_ON_EVERY_DEVICE(ProgramClasses);

}  // namespace
}  // namespace kiln
