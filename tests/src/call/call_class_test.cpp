// Calls of shapes that were never seen but whose class is known: the bits are those of a plan made
// for the call, the errors too, and no plan is kept.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

class CallClasses : public testing::DeviceTest {
 protected:
  static constexpr std::int64_t kElements = 1 << 16;

  void SetUp() override {
    DeviceTest::SetUp();
    if (backend == nullptr) return;
    std::mt19937 random(7);
    std::vector<float> values(kElements);
    for (float& value : values) value = std::uniform_real_distribution<float>(0.5f, 2)(random);
    for (float*& input : inputs) input = allocate(values);
    std::vector<float> bits(kElements);  // of integers from -1 on
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = std::bit_cast<float>(static_cast<std::int32_t>(i * 7 % 60) - 1);
    }
    places = allocate(bits);
    by_class = zeros(kElements);
    by_plan = zeros(kElements);
  }

  View view(float* data, Dims shape) const { return {data, DType::f32, std::move(shape), device}; }
  std::uint64_t plans() const { return statistics(device).plans; }

  /// Launches a plan that was made for this call.
  void call_by_plan(const Function& f, std::span<const Argument> in, const View& out) {
    Launch launch = f.bind(stream, in, {&out, 1});
    launch(stream);
  }

  std::array<float*, 3> inputs{};
  float* places = nullptr;  ///< of i32
  float* by_class = nullptr;
  float* by_plan = nullptr;
};

/// A function of arrays a and b, and of a scalar; the shapes of those and of the output for sizes.
struct Form {
  std::string_view name;
  std::string_view text;
  Dims a, b, out;  ///< -1 and -2 stand for sizes
};

const Form kForms[] = {
    {"elements", "a * s + b", {-1}, {-1}, {-1}},
    {"broadcast", "a * s + b", {-1, -2}, {-2}, {-1, -2}},
    {"repeated", "a * b - s", {-1, 1}, {-1, -2}, {-1, -2}},
    {"wider", "a + b * s", {-2}, {1}, {-1, -2}},
    {"rows", "a * s / (1 + sum(a * b, -1))", {-1, -2}, {-2}, {-1, -2}},
    {"sums", "sum(a * b, -1) * s", {-1, -2}, {-1, -2}, {-1, 1}},
    {"left_out", "sum(a * b, -1) * s", {-1, -2}, {-1, -2}, {-1}},
    {"columns", "sum(a * b, 0) * s", {-1, -2}, {-1, -2}, {1, -2}},
    {"products", "sum(a * b, -1) * s", {-1, -2}, {-2}, {-1, 1}},
    {"iota", "where(iota(1) > iota(0), a, b) * s + f32(iota())", {-1, -2}, {-2}, {-1, -2}},
    {"scan", "cumsum(a * s, -1) + b", {-1, -2}, {-2}, {-1, -2}},
};

Dims shape_of(const Dims& form, std::int64_t first, std::int64_t second) {
  Dims shape = form;
  for (std::int64_t& size : shape) size = size == -1 ? first : size == -2 ? second : size;
  return shape;
}

TEST_P(CallClasses, BitsAreThoseOfAPlanForTheCall) {
  std::mt19937 random(11);
  const auto size = [&](int most) { return std::uniform_int_distribution<int>(2, most)(random); };
  for (const Form& form : kForms) {
    const Function f = parse(form.name, form.text, {}, std::array<std::string, 3>{"a", "b", "s"});
    std::uint64_t without_plan = 0;
    for (int turn = 0; turn < 16; ++turn) {
      // Sizes near each other, so that most have a schedule that others had.
      const std::int64_t first = size(90);
      const std::int64_t second = 256 + 4 * size(90);
      const Argument in[] = {view(inputs[0], shape_of(form.a, first, second)),
                             view(inputs[1], shape_of(form.b, first, second)), 0.25 * turn};
      const View out = view(by_class, shape_of(form.out, first, second));
      const std::uint64_t before = plans();
      f.call(stream, in, {&out, 1});
      if (plans() == before) ++without_plan;
      call_by_plan(f, in, view(by_plan, shape_of(form.out, first, second)));
      const auto count = static_cast<std::size_t>(out.size());
      ASSERT_EQ(read(by_class, count), read(by_plan, count))
          << form.name << " of " << first << " and " << second;
    }
    EXPECT_GT(without_plan, 5u) << form.name;
  }
}

/// A function of arrays, of which i and n are integers; its output may be its first argument.
struct PlacedForm {
  std::string_view text;
  std::vector<std::string> names;
  std::vector<Dims> inputs;
  Dims out;
  bool updates = false;
};

const PlacedForm kPlacedForms[] = {
    {"take(a, i) * 2 + b", {"a", "b", "i"}, {{-1, -2}, {-2}, {7}}, {7, -2}},
    {"take(a, i, 1) - b", {"a", "b", "i"}, {{-1, -2}, {-1, 1}, {9}}, {-1, 9}},
    {"softmax(take(a, i), -1)", {"a", "i"}, {{-1, -2}, {7}}, {7, -2}},
    {"sum(take(a, i) * b, -1)", {"a", "b", "i"}, {{-1, -2}, {-2}, {7}}, {7, 1}},
    {"put(a, i, b * 2)", {"a", "b", "i"}, {{-1, -2}, {5, -2}, {5}}, {-1, -2}, true},
    {"put(a, i, b, 1)", {"a", "b", "i"}, {{-1, -2}, {-1, 5}, {5}}, {-1, -2}, true},
    {"exp(a[:, :n]) * b", {"a", "b", "n"}, {{-1, -2}, {-2}, {-1, 1}}, {-1, -2}},
    {"a[:n] + b", {"a", "b", "n"}, {{-1, -2}, {-2}, {1, 1}}, {-1, -2}},
    {"sum(bound(a, n, 1), -1)", {"a", "n"}, {{-1, -2}, {-1, 1}}, {-1, 1}},
    {"sum(softmax(sum(a * b, -1) * 0.125, -2) * c, -2)",
     {"a", "b", "c"},
     {{2, 4, 1, 32}, {2, 1, -2, 32}, {2, 1, -2, 32}},
     {2, 4, 1, 32}},
    {"sum(softmax(where(iota(-2) <= i + 1, sum(a * b, -1), -inf), -2) * c, -2)",
     {"a", "b", "c", "i"},
     {{1, -1, 1, 16}, {1, 1, -2, 16}, {1, 1, -2, 16}, {1, -1, 1, 1}},
     {1, -1, 1, 16}},
    {"softmax(where(iota(-1) != i, a, -inf), -1)", {"a", "i"}, {{-1, -2}, {-1, 1}}, {-1, -2}},
    {"a * f32(iota(0)) - mean(a * f32(iota(-1)), 0)", {"a"}, {{-1, -2}}, {-1, -2}},
};

TEST_P(CallClasses, OfAttentionAndOfPlacesAndEndsThatDataSays) {
  std::mt19937 random(13);
  const auto size = [&](int most) { return std::uniform_int_distribution<int>(2, most)(random); };
  for (const PlacedForm& form : kPlacedForms) {
    const Function f = parse("placed", form.text, {}, form.names);
    std::uint64_t without_plan = 0;
    for (int turn = 0; turn < 16; ++turn) {
      const std::int64_t first = 100 + size(60);
      const std::int64_t second = 256 + 4 * size(30);
      const auto arguments = [&](float* updated) {
        std::vector<Argument> in;
        for (std::size_t i = 0; i < form.inputs.size(); ++i) {
          const Dims shape = shape_of(form.inputs[i], first, second);
          const bool integers = form.names[i] == "i" || form.names[i] == "n";
          const bool is_updated = form.updates && i == 0;
          in.emplace_back(
              integers ? View(places, DType::i32, shape, device)
                       : view(is_updated ? updated : inputs.at(in.size() % inputs.size()), shape));
        }
        return in;
      };
      const View out = view(by_class, shape_of(form.out, first, second));
      const std::uint64_t before = plans();
      f.call(stream, arguments(by_class), {&out, 1});
      if (plans() == before) ++without_plan;
      call_by_plan(f, arguments(by_plan), out.with_data(by_plan));
      const auto count = static_cast<std::size_t>(out.size());
      ASSERT_EQ(read(by_class, count), read(by_plan, count))
          << form.text << " of " << first << " and " << second;
    }
    EXPECT_GT(without_plan, 5u) << form.text;
  }
}

// What has one element along an axis that is longer beside it has the index 0 there.
TEST_P(CallClasses, CountNoAxisThatIsLongerBeside) {
  const auto error = [&](std::string_view text, const Dims& b, const Dims& output) {
    const Function f = parse("f", text, {}, std::array<std::string, 2>{"a", "b"});
    const View out = view(by_class, output);
    return testing::error_of([&] {
      f(stream, {view(inputs[0], {4, 8}), view(inputs[1], b)}, {out});
    });
  };
  for (const std::string& message :
       {error("sum(a, -1) + sum(b * f32(iota(0)), -1)", {1, 8}, {4, 1}),
        error("sum(a, 0) + sum(b * f32(iota(1)), 0)", {4, 1}, {1, 8}),
        error("max(a + b, -1) * f32(iota(-1))", {1, 8}, {4, 1})}) {
    EXPECT_NE(message.find("an iota counts along an axis that is longer"), std::string::npos)
        << message;
  }
}

TEST_P(CallClasses, WhatIsUpdatedIsTheInput) {
  const Function f = parse("f", "put(a, i, b)", {}, std::array<std::string, 3>{"a", "i", "b"});
  const auto call = [&](std::int64_t rows, float* updated) {
    const Argument in[] = {view(by_class, {rows, 64}), View(places, DType::i32, {2}, device),
                           view(inputs[0], {2, 64})};
    const View out = view(updated, {rows, 64});
    f.call(stream, in, {&out, 1});
  };
  call(40, by_class);
  EXPECT_NE(testing::error_of([&] { call(48, by_plan); }).find("expected exactly the view of"),
            std::string::npos);
}

TEST_P(CallClasses, StridesAndAlignmentAreNumbersToo) {
  const Function f = parse("f", "a - b", {}, std::array<std::string, 2>{"a", "b"});
  std::mt19937 random(5);
  const auto upto = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int turn = 0; turn < 40; ++turn) {
    const std::int64_t rows = 2 + upto(20), columns = 200 + upto(50);
    const std::int64_t pitch = columns + upto(1) * 6;
    const auto matrix = [&](float* data) {
      return View(data + upto(1), DType::f32, {rows, columns}, {pitch, 1}, device);
    };
    const View turned(inputs[1], DType::f32, {rows, columns}, {1, rows}, device);
    const Argument in[] = {matrix(inputs[0]), turn % 3 == 0 ? turned : matrix(inputs[1])};
    const View out = matrix(by_class);
    f.call(stream, in, {&out, 1});
    call_by_plan(f, in, out.with_data(by_plan + (static_cast<float*>(out.data()) - by_class)));
    ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements)) << turn;
  }
}

// An output of each shape has a kernel of its own; the larger one runs first.
TEST_P(CallClasses, OutputsOfSeveralShapes) {
  const Function f =
      parse("f", "y = a * 2; z = a + b; y, z", {}, std::array<std::string, 2>{"a", "b"});
  for (int turn = 0; turn < 20; ++turn) {
    const std::int64_t rows = 2 + turn, columns = 300 + 8 * turn;
    const Argument in[] = {view(inputs[0], {columns}), view(inputs[1], {rows, columns})};
    const auto outputs = [&](float* data) {
      return std::array{view(data, {columns}), view(data + 4096, {rows, columns})};
    };
    f.call(stream, in, outputs(by_class));
    Launch launch = f.bind(stream, in, outputs(by_plan));
    launch(stream);
    ASSERT_EQ(read(by_class, kElements), read(by_plan, kElements)) << turn;
  }
}

TEST_P(CallClasses, NothingIsKept) {
  const Function f = parse("f", "a * 2 + b", {}, std::array<std::string, 2>{"a", "b"});
  const auto call = [&](std::int64_t size) {
    f(stream, {view(inputs[0], {size}), view(inputs[1], {size})}, {view(by_class, {size})});
  };
  call(5000);
  const Statistics before = statistics(device);
  for (std::int64_t size = 4600; size < 5400; ++size) call(size == 5000 ? 5400 : size);
  const Statistics after = statistics(device);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.plan_bytes, before.plan_bytes);
  EXPECT_EQ(after.plans_dropped, before.plans_dropped);
}

TEST_P(CallClasses, AShapeThatIsCalledOftenGetsAPlan) {
  const Function f = parse("f", "a * 2 + 3", {}, std::array<std::string, 1>{"a"});
  const auto call = [&](std::int64_t size) {
    f(stream, {view(inputs[0], {size})}, {view(by_class, {size})});
  };
  call(5000);
  const std::uint64_t before = plans();
  for (int i = 0; i < 200; ++i) call(6000);
  EXPECT_EQ(plans(), before);
  for (int i = 0; i < 100; ++i) call(6000);
  EXPECT_EQ(plans(), before + 1);
}

// The same words for a class that is known as for one that is not.
TEST_P(CallClasses, ErrorsAreThoseOfACallAtFirst) {
  const auto make = [] {
    return parse("f", "a * 2 + b", {}, std::array<std::string, 2>{"a", "b"});
  };
  const Function known = make();
  known(stream, {view(inputs[0], {5, 300}), view(inputs[1], {300})}, {view(by_class, {5, 300})});
  const auto strided = [&](Dims strides) {
    return View(by_class, DType::f32, {6, 310}, std::move(strides), device);
  };
  const View a = view(inputs[0], {6, 310});
  const View b = view(inputs[1], {310});
  const View outputs[] = {
      view(by_class, {6, 311}),
      view(by_class, {310}),
      view(nullptr, {6, 310}),
      strided({0, 1}),
      strided({1, 1}),
      view(inputs[0] + 5, {6, 310}),
      {reinterpret_cast<char*>(by_class) + 2, DType::f32, {6, 310}, device},
  };
  for (const View& output : outputs) {
    const auto error = [&](const Function& f) {
      return testing::error_of([&] { f(stream, {a, b}, {output}); });
    };
    EXPECT_EQ(error(known), error(make()));
    EXPECT_NE(error(known), "no error");
  }
  EXPECT_EQ(testing::error_of([&] { known(stream, {a, b}, {strided({1, 6})}); }), "no error");
}

KILN_ON_EVERY_DEVICE(CallClasses);

}  // namespace
}  // namespace kiln
