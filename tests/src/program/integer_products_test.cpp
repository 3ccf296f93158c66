// Matrices of small integers times vectors of 8-bit integers on every device that is there: sums
// that are exact whatever instructions a device has for them, and such sums scaled once for each
// group. Every width, number of rows and columns, alignment and tail, against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

constexpr DType kIntegerWeights[] = {DType::u4, DType::i4, DType::u8, DType::i8};

// Every number of the dtype, the least and the largest more often than others.
HostArray fill(HostArray array, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::uint64_t most = (std::uint64_t{1} << bits(array.dtype)) - 1;
  const std::uint64_t extremes[] = {0, most, most / 2, most / 2 + 1};
  for (std::int64_t i = 0; i < array.size(); ++i) {
    const std::uint64_t drawn = random();
    testing::set_bits(array, i, drawn % 3 == 0 ? extremes[drawn / 3 % 4] : drawn & most);
  }
  return array;
}
HostArray integers(DType dtype, const Dims& shape, std::uint64_t seed) {
  return fill(HostArray::contiguous(dtype, shape), seed);
}

class IntegerProducts : public testing::OnDevice {
 protected:
  void check(const std::string& text, const std::vector<HostArray>& inputs, double slack = 0) {
    testing::check_on(device(), text, inputs, slack);
  }
  /// Whether the kernel of arrays q, x, scale, bias, step has sums of integer products.
  bool in_integers(const std::string& text, const std::vector<ArgumentSpec>& arguments) {
    Specification types;
    types.arguments = arguments;
    const std::string source =
        emit_for(parse("f", text), types, jit::backend(device()).target(), false);
    return source.find("dot_products(") != std::string::npos;
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, IntegerProducts,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(IntegerProducts, AreExactForEveryWeightAndLength) {
  testing::Share share(GetParam(), 3);
  std::uint64_t seed = 1;
  for (const DType dtype : kIntegerWeights) {
    for (const std::int64_t length : {1, 7, 8, 36, 64, 96, 4096, 4128}) {
      ++seed;
      if (!share.next()) continue;
      const auto rows = static_cast<std::int64_t>(1 + seed % 7);
      const HostArray q = integers(dtype, {rows, length}, seed);
      const HostArray x = integers(DType::i8, {length}, seed + 100);
      check("sum(i32(q) * i32(x), -1)", {q, x});
      if (length % 32 == 0) check("i32(sum((i32(q) - 8) * x, -1))", {q, x});
    }
  }
}

TEST_P(IntegerProducts, AreExactForOneToEightColumns) {
  testing::Share share(GetParam(), 3);
  for (const DType dtype : kIntegerWeights) {
    for (std::int64_t columns = 1; columns <= 8; ++columns) {
      if (!share.next()) continue;
      const HostArray q = integers(dtype, {columns % 3 * 2 + 3, 1, 96}, 200);
      const HostArray x = integers(DType::i8, {columns, 96}, 201);
      check("sum(i32(q) * i32(x), -1)", {q, x});
    }
  }
}

// Rows that begin at any byte, and with gaps between them.
TEST_P(IntegerProducts, AreExactForEveryAlignment) {
  testing::Share share(GetParam(), 4, testing::random_seed());
  for (const DType dtype : kIntegerWeights) {
    for (const std::int64_t lead : {0, 2, 5, 8}) {
      if (!share.next()) continue;
      SCOPED_TRACE(fmt::format("{}, {} elements between rows", name(dtype), lead));
      const std::int64_t stride = 64 + lead;
      const HostArray q = fill(HostArray::strided(dtype, {5, 64}, {stride, 1}, lead), 300);
      const HostArray x = fill(HostArray::strided(DType::i8, {64}, {1}, lead), 301);
      check("sum(i32(q) * i32(x), -1)", {q, x});
    }
  }
}

// Sums of the largest products there are, of more terms than a 32-bit sum of them holds.
TEST_P(IntegerProducts, AreExactForTheLargestSums) {
  constexpr std::int64_t kLength = 1 << 17;
  for (const DType dtype : {DType::u8, DType::i8}) {
    HostArray q = HostArray::contiguous(dtype, {1, kLength});
    HostArray x = HostArray::contiguous(DType::i8, {kLength});
    for (std::int64_t i = 0; i < kLength; ++i) {
      testing::set_bits(q, i, dtype == DType::u8 ? 255 : 128);
      testing::set_bits(x, i, 128);
    }
    check("sum(i32(q) * i32(x), -1)", {q, x});
  }
}

TEST_P(IntegerProducts, AreScaledOnceForEachGroup) {
  testing::Share share(GetParam(), 6, testing::random_seed());
  std::uint64_t seed = 400;
  for (const DType dtype : kIntegerWeights) {
    for (const std::int64_t group : {16, 32, 64, 128}) {
      seed += 10;
      if (!share.next()) continue;
      const auto columns = static_cast<std::int64_t>(1 + seed / 10 % 5);
      const DType narrow = seed % 20 == 0 ? DType::f16 : DType::bf16;
      const HostArray q = integers(dtype, {11, 1, 5, group}, seed);
      const HostArray scale = testing::random_array(narrow, {11, 1, 5, 1}, seed + 1);
      const HostArray bias = testing::random_array(narrow, {11, 1, 5, 1}, seed + 2);
      const HostArray x = integers(DType::i8, {columns, 5, group}, seed + 3);
      const HostArray step = testing::random_array(DType::f32, {columns, 5, 1}, seed + 4, 0.01);
      check("sum((f32(q) - 8) * scale * (x * step), -1, -2)", {q, scale, x, step}, 64);
      check("sum((q * scale + bias) * (x * step), -1, -2)", {q, scale, bias, x, step}, 64);
      check("sum(f32(i32(q) * i32(x)) * (scale * step), -1, -2)", {q, x, scale, step}, 64);
      check("mean((f32(q) - zero) * scale * (x * step), -1, -2)", {q, bias, scale, x, step}, 64);
    }
  }
}

TEST_P(IntegerProducts, AreTakenWhereTheyAreExact) {
  const auto types = [](DType weights, DType activation, std::int64_t group) {
    return std::vector<ArgumentSpec>{{"q", weights, {64, 1, 4, group}, {}, false},
                                     {"x", activation, {2, 4, group}, {}, false},
                                     {"scale", DType::f16, {64, 1, 4, 1}, {}, false},
                                     {"bias", DType::f16, {64, 1, 4, 1}, {}, false},
                                     {"step", DType::f32, {2, 4, 1}, {}, false}};
  };
  const auto taken = [&](const std::string& text, const std::vector<ArgumentSpec>& all) {
    std::vector<ArgumentSpec> used;
    for (const ArgumentSpec& argument : all) {
      if (text.find(argument.name) != std::string::npos) used.push_back(argument);
    }
    return in_integers(text, used);
  };
  for (const DType dtype : kIntegerWeights) {
    const auto all = types(dtype, DType::i8, 32);
    EXPECT_TRUE(taken("sum(i32(q) * i32(x), -1, -2)", all)) << name(dtype);
    EXPECT_TRUE(taken("sum((i32(q) - 8) * i32(x), -1, -2)", all)) << name(dtype);
    EXPECT_TRUE(taken("sum(q * scale * x * step, -1, -2)", all)) << name(dtype);
    EXPECT_TRUE(taken("sum((q * scale - bias) * (x * step), -1, -2)", all)) << name(dtype);
    EXPECT_TRUE(taken("sum(f32((i32(q) - 8) * x) * scale * step, -1, -2)", all)) << name(dtype);
  }
  const auto i8 = types(DType::i8, DType::i8, 32);
  EXPECT_FALSE(taken("sum(q * x, -1, -2)", i8));                       // products wrap
  EXPECT_FALSE(taken("sum(i32(u8(q)) * i32(x), -1, -2)", i8));         // negative ones do
  EXPECT_FALSE(taken("sum(i64(i16(i32(q) * x)) * 2, -1, -2)", i8));    // more than products
  EXPECT_FALSE(taken("sum((i32(q) - 300) * i32(x), -1, -2)", i8));     // no 8-bit zero point
  EXPECT_FALSE(taken("max(i32(q) * i32(x), -1, -2)", i8));             // no sum
  EXPECT_FALSE(taken("sum(exp(f32(q)) * x * step, -1, -2)", i8));      // no integers
  EXPECT_FALSE(taken("sum(q * scale * bf16(x * step), -1, -2)", i8));  // rounded activations
  EXPECT_TRUE(taken("sum(i32(q) * i32(x), -1, -2)", types(DType::i8, DType::u8, 32)));
  EXPECT_FALSE(taken("sum(i32(q) * i32(x), -1, -2)", types(DType::u8, DType::u8, 32)));
  EXPECT_FALSE(taken("sum(q * scale * x, -1, -2)", types(DType::u4, DType::bf16, 32)));
}

// A scale that is not finite shows, and is that row's affair; what is finite stays so.
TEST_P(IntegerProducts, KeepWhatIsNotFiniteInItsRow) {
  const HostArray q = integers(DType::u4, {9, 1, 2, 64}, 500);
  HostArray scale = testing::random_array(DType::f32, {9, 1, 2, 1}, 501);
  testing::set_bits(scale, 3, fusion::encode(INFINITY, DType::f32));
  testing::set_bits(scale, 8, fusion::encode(1e37, DType::f32));
  const HostArray x = integers(DType::i8, {1, 2, 64}, 502);
  HostArray step = HostArray::contiguous(DType::f32, {1, 2, 1});
  for (std::int64_t i = 0; i < 2; ++i)
    testing::set_bits(step, i, fusion::encode(0x1p-20, DType::f32));
  const std::string text = "sum(q * scale * (x * step), -1, -2)";
  const HostArray want = testing::reference_of(text, {q, scale, x, step})[0];
  const HostArray got = testing::outputs_of(device(), text, {q, scale, x, step})[0];
  for (std::int64_t i = 0; i < 9; ++i) {
    const double expected = testing::number_at(want, i);
    if (i == 1) {
      EXPECT_FALSE(std::isfinite(testing::number_at(got, i)));
    } else {
      EXPECT_NEAR(testing::number_at(got, i), expected, std::fabs(expected) * 1e-4 + 1e-3) << i;
    }
  }
}

class QuantisedPrograms : public testing::ProgramsOnDevices {
 protected:
  static std::size_t kernels_of(const std::string& text, const std::vector<HostArray>& inputs) {
    const Function function = parse("f", text);
    Specification types;
    for (const std::string& name : argument_names(function)) {
      const HostArray& array = inputs[types.arguments.size()];
      types.arguments.push_back({name, array.dtype, array.shape, {}, false});
    }
    return program_specs(function, types).size();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, QuantisedPrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// Activations are quantised for each group by one kernel, and multiplied by another.
TEST_P(QuantisedPrograms, QuantiseActivationsAndMultiply) {
  const HostArray q = integers(DType::u4, {37, 4, 32}, 600);
  const HostArray scale = testing::random_array(DType::f16, {37, 4, 1}, 601);
  const HostArray h = testing::random_array(DType::bf16, {4, 32}, 602);
  check(
      "step = maximum(max(abs(f32(h)), -1), 1e-20) / 127; x = i8(round(f32(h) / step)); "
      "sum((f32(q) - 8) * scale * (x * step), -1, -2)",
      {h, q, scale}, 1e-4);
}

// Rows and columns are quantised to packed numbers by the kernel that finds their scales. The same
// number stored with a byte of its own says what each has to be, however a quotient is rounded.
TEST_P(QuantisedPrograms, PackWhatTheyReduce) {
  struct Case {
    DType dtype;
    Dims shape;
    int axis;
  };
  const Case cases[] = {
      {DType::bf16, {5, 2048}, -1},   {DType::f32, {37, 96}, -1},   {DType::f16, {6, 1410}, -1},
      {DType::bf16, {130, 2}, -1},    {DType::f32, {3, 50}, -1},    {DType::bf16, {2, 9018}, -1},
      {DType::bf16, {3, 40, 64}, -2}, {DType::f32, {2, 9, 34}, -2}, {DType::f16, {5, 16, 24}, 0},
      {DType::bf16, {2, 70, 2}, -2},  {DType::f32, {2, 33002}, -1},
  };
  constexpr const char* kScales[] = {
      "s = max(abs(x), {0}) / 7.0 + 1e-8; q = round(x / s); i4(q), i8(clip(q, -8, 7)), s",
      "lo = min(x, {0}); s = (max(x, {0}) - lo) / 15.0 + 1e-8; q = round((x - lo) / s); "
      "u4(q), i8(clip(q, 0, 15)), s, mean(x, {0})",
      "n = x * rsqrt(mean(x * x, {0}) + 1e-6); s = max(abs(n), {0}) / 6.0; "
      "f4e2m1(n / s), f32(f4e2m1(n / s)), s"};
  testing::Share share(GetParam(), 2);
  std::size_t turn = 0;
  for (const Case& own : cases) {
    if (!share.next()) continue;
    const HostArray x = testing::random_array(own.dtype, own.shape, 630);
    const std::string text =
        fmt::format(fmt::runtime(kScales[turn++ % std::size(kScales)]), own.axis);
    SCOPED_TRACE(text);
    EXPECT_EQ(kernels_of(text, {x}), 1U) << own.shape[own.shape.size() - 1];
    const std::vector<HostArray> got = run(parse_program("packed", text), text, {x}, false);
    const std::vector<HostArray> want = testing::reference_of(text, {x});
    int different = 0;
    for (std::int64_t i = 0; i < got[0].size(); ++i) {
      different += testing::number_at(got[0], i) == testing::number_at(got[1], i) ? 0 : 1;
    }
    EXPECT_EQ(different, 0);
    const bool whole = is_integer(got[1].dtype);
    testing::expect_close(got[1], want[1], whole ? 0 : 1e-5, whole ? 1 : 2, text);
    for (std::size_t i = 2; i < got.size(); ++i) {
      testing::expect_close(got[i], want[i], 0.01, 1e-3, text);
    }
  }
}

// Where rows begin in the middle of a byte another kernel quantises them, one element at a time; so
// does a Function.
TEST_P(QuantisedPrograms, PackRowsOfOddLengths) {
  const std::string text = "s = max(abs(x), -1) / 7.0 + 1e-8; i4(round(x / s) * 2.0 - 1.0)";
  HostArray x = testing::random_array(DType::f32, {40, 33}, 631);
  for (std::int64_t row = 0; row < 40; ++row) {  // scales of 1
    for (std::int64_t i = 0; i < 33; ++i) {
      const double number = i == 7 ? 7 : (i * 5 + row) % 7 - 3;
      testing::set_bits(x, row * 33 + i, fusion::encode(number, DType::f32));
    }
  }
  EXPECT_EQ(kernels_of(text, {x}), 2U);
  check(text, {x}, 0);
  testing::check_on(device(), text, {x}, 0);
}

// Whichever way a caller brackets, names, converts or reshapes what is quantised, or adds groups
// up, kernels multiply integers: what is quantised and its scales pass between kernels, not the
// numbers they stand for.
TEST_P(QuantisedPrograms, MultiplyIntegersHoweverTheyAreWritten) {
  const std::string quantise =
      "g = reshape(h, -1, 1, 4, 32); step = maximum(max(abs(g), -1), 1e-20) / 127; "
      "x = i8(round(g / step)); ";
  const std::string flat =
      "g = reshape(h, -1, 4, 32); step = maximum(max(abs(g), -1), 1e-20) / 127; "
      "x = i8(round(g / step)); ";
  const std::string texts[] = {
      quantise + "sum((q * scale + bias) * x * step, -1, -2)",
      quantise + "sum((q * scale + bias) * (x * step), -1, -2)",
      quantise + "d = step * f32(x); sum(d * (q * scale + bias), -1, -2)",
      quantise +
          "d = reshape(x * step, -1, 128); "
          "sum((q * scale + bias) * reshape(d, -1, 1, 4, 32), -1, -2)",
      quantise + "sum((q * scale + bias) * (f32(i32(x)) * step), -1, -2)",
      quantise + "sum((f32(q) - 8) * scale * (x * step), -1, -2)",
      quantise + "sum(f32(i32(q) * i32(x)) * (scale * step), -1, -2)",
      quantise + "sum(sum(i32(q) * i32(x), -1) * (scale * step), -2)",
      quantise + "sum(f32(sum((i32(q) - 8) * i32(x), -1)) * scale * step, -2)",
      flat + "sum((q * scale + bias) * (x * step)[:, None], -1, -2)",
      flat +
          "x2 = reshape(x, -1, 128); sum((q * scale + bias) * "
          "(reshape(x2, -1, 1, 4, 32) * reshape(step, -1, 1, 4, 1)), -1, -2)",
  };
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const std::int64_t sequences : {1, 3}) {
    const HostArray q = integers(DType::u4, {64, 4, 32}, 610);
    const HostArray scale = testing::random_array(DType::f16, {64, 4, 1}, 611);
    const HostArray bias = testing::random_array(DType::f16, {64, 4, 1}, 612);
    const HostArray h = testing::random_array(DType::f32, {sequences, 128}, 613);
    for (const std::string& text : texts) {
      if (!share.next()) continue;
      SCOPED_TRACE(text);
      const Function function = parse("f", text);
      std::vector<HostArray> inputs;
      Specification types;
      for (const std::string& name : argument_names(function)) {
        inputs.push_back(name == "q" ? q : name == "scale" ? scale : name == "bias" ? bias : h);
        types.arguments.push_back({name, inputs.back().dtype, inputs.back().shape, {}, false});
      }
      std::size_t kernels = 0;
      bool integers = false;
      for (const KernelSpec& spec : program_specs(function, types)) {
        const std::string source = emit_for(spec, jit::backend(device()).target(), false);
        integers = integers || source.find("dot_products(") != std::string::npos;
        ++kernels;
      }
      EXPECT_TRUE(integers);
      EXPECT_EQ(kernels, 2U);
      check(text, inputs, 1e-4);
    }
  }
}

// A sum of the sums of groups, each times a number of its group, is one kernel.
TEST_P(QuantisedPrograms, AddGroupsUpAtOnce) {
  testing::Share share(GetParam(), 3);
  for (const DType dtype : {DType::u4, DType::i8, DType::bf16, DType::f32}) {
    for (const std::int64_t group : {7, 32, 64}) {
      if (!share.next() || (dtype == DType::u4 && group % 2 != 0)) continue;
      SCOPED_TRACE(fmt::format("{}, groups of {}", name(dtype), group));
      const HostArray w = is_integer(dtype) ? integers(dtype, {21, 5, group}, 620)
                                            : testing::random_array(dtype, {21, 5, group}, 620);
      const HostArray scale = testing::random_array(DType::f32, {21, 5, 1}, 621);
      const HostArray x = testing::random_array(DType::f32, {3, 1, 5, group}, 622);
      for (const char* text :
           {"sum(sum(w * x, -1) * s, -2)", "sum(s * sum(x * (f32(w) - 3), -1) * 0.5, -2)"}) {
        const bool second = std::string_view(text).starts_with("sum(s ");
        const std::vector<HostArray> inputs =
            second ? std::vector{scale, x, w} : std::vector{w, x, scale};
        EXPECT_EQ(kernels_of(text, inputs), 1U) << text;
        check(text, inputs, 1e-3);
      }
    }
  }
}

}  // namespace
}  // namespace kiln
