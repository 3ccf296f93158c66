// Equal bits between devices: a fixed corpus through every op whose result is defined to the last
// bit, and reductions of such, their outputs hashed and compared with the hashes that are kept in
// tests/data. Whether the results are right is for op_test.cpp, row_bits_test.cpp and
// column_bits_test.cpp. KILN_UPDATE_GOLDEN=1 writes the hashes anew, from the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::Op;
using fusion::OpInfo;
using fusion::Rule;
using testing::HostArray;

constexpr std::int64_t kCount = 4096;
constexpr std::size_t kOutputs = 10;  // of one kernel
constexpr auto kGoldenFile = KILN_TEST_DATA "/bit_equality.txt";

using Hashes = std::map<std::string, std::string>;

Hashes read_golden() {
  Hashes hashes;
  std::ifstream file(kGoldenFile);
  std::string name;
  std::string hash;
  while (file >> name >> hash) hashes[name] = hash;
  return hashes;
}

bool updates_golden() { return std::getenv("KILN_UPDATE_GOLDEN") != nullptr; }

// Adds what a test has found to the file, whose lines are in order.
void update_golden(const Hashes& found) {
  Hashes hashes = read_golden();
  for (const auto& [name, hash] : found) hashes[name] = hash;
  std::ofstream file(kGoldenFile);
  for (const auto& [name, hash] : hashes) file << name << ' ' << hash << '\n';
}

std::uint64_t encoded(long double value, DType dtype) {
  return fusion::reference::encode(fusion::reference::from_real(dtype, value));
}
long double decode(std::uint64_t pattern, DType dtype) {
  return fusion::reference::decode(dtype, pattern).real;
}

// Operands that are the same on every platform: of the standard library's distributions nobody
// promises that.
std::vector<std::uint64_t> corpus(DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::uint64_t mask = bits(dtype) == 64 ? ~0ull : (1ull << bits(dtype)) - 1;
  std::vector<std::uint64_t> values;
  if (is_floating(dtype)) {
    const std::uint64_t infinity = encoded(INFINITY, dtype);
    for (const long double value : {0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 0.1, 10.0, 1e-3, 1e-40, 65504.0,
                                    1e30, 256.0, double(INFINITY)}) {
      values.push_back(encoded(value, dtype));
      values.push_back(encoded(-value, dtype));
    }
    values.push_back(encoded(std::nanl(""), dtype));
    values.push_back(1);             // the smallest subnormal
    values.push_back(infinity - 1);  // the largest finite number, but of types that saturate
  } else {
    for (const std::uint64_t value : std::initializer_list<std::uint64_t>{
             0ull, 1ull, 2ull, 3ull, 5ull, 7ull, 8ull, 31ull, 64ull, ~0ull, ~1ull, ~2ull, ~6ull,
             mask >> 1, (mask >> 1) + 1}) {
      values.push_back(value & mask);
    }
  }
  while (values.size() < static_cast<std::size_t>(kCount)) {
    const std::uint64_t drawn = random();
    const auto near = static_cast<double>(static_cast<std::int64_t>(drawn % 200001) - 100000);
    const bool any = random() % 2 == 0;
    values.push_back(is_floating(dtype) ? any ? drawn & mask : encoded(near / 1024, dtype)
                                        : (drawn >> random() % 64) & mask);
  }
  if (dtype == DType::boolean) {
    for (std::uint64_t& value : values) value &= 1;
  }
  return values;
}

// The first elements pair the special values of the operands, the others meet by chance.
HostArray make_input(DType dtype, std::size_t argument) {
  constexpr std::int64_t kSpecial = 31;
  HostArray array = HostArray::contiguous(dtype, {kCount});
  const bool complex = dtype == DType::c64;
  const auto re = corpus(complex ? DType::f32 : dtype, 7 + argument);
  const auto im = corpus(DType::f32, 77 + argument);
  for (std::int64_t k = 0; k < kCount; ++k) {
    const std::int64_t choices[] = {k / kSpecial, k % kSpecial, k * 7 % kSpecial};
    const auto at = static_cast<std::size_t>(k < kSpecial * kSpecial ? choices[argument] : k);
    const auto other = static_cast<std::size_t>((k * 5 + 3) % kCount);
    testing::set_bits(array, k, complex ? re[at] | im[other] << 32 : re[at]);
  }
  return array;
}

std::uint64_t without_payload(std::uint64_t pattern, DType dtype) {
  if (dtype == DType::c64) {
    return without_payload(pattern & 0xffffffffu, DType::f32) |
           without_payload(pattern >> 32, DType::f32) << 32;
  }
  if (!is_floating(dtype) || !std::isnan(decode(pattern, dtype))) return pattern;
  return encoded(std::nanl(""), dtype);
}

struct GoldenCall {
  std::string name;  ///< in the file
  std::string text;
  std::size_t arity;
};

/// What follows the tree (fusion/numerics.md) and is computed of operations that are rounded
/// correctly.
struct GoldenReduction {
  std::string name;
  std::string text;
  Dims shape;
};

std::vector<GoldenReduction> reductions(DType dtype) {
  constexpr std::pair<std::string_view, std::string_view> kOfRows[] = {
      {"sum", "sum(x, -1)"},
      {"product", "prod(1 + x * 0.03125, -1)"},
      {"variance", "d = x - mean(x, -1); mean(d * d, -1)"},
      {"normalised", "x / sqrt(mean(x * x, -1) + 0.5)"},
      {"matrix", "sum(x * y, -1)"},
      {"running", "cumsum(x, -1)"}};
  std::vector<GoldenReduction> all;
  for (const std::int64_t length :
       {1, 100, 256, 776, 777, 4096, 4097, 5000, 8192, 12'001, 16'384}) {
    for (const auto& [what, text] : kOfRows) {
      all.push_back({fmt::format("rows.{}.{}.{}", what, length, name(dtype)),
                     std::string(text),
                     {3, length}});
    }
    all.push_back(
        {fmt::format("columns.sum.{}.{}", length, name(dtype)), "sum(x, -2)", {length, 13}});
    all.push_back(
        {fmt::format("columns.running.{}.{}", length, name(dtype)), "cumsum(x, -2)", {length, 13}});
  }
  // Of several chunks.
  for (const std::int64_t length : {32'769, 50'257, 65'536, 100'003, 262'144}) {
    for (const auto& [what, text] : kOfRows) {
      if (what == "product" || what == "running") continue;
      all.push_back({fmt::format("rows.{}.{}.{}", what, length, name(dtype)),
                     std::string(text),
                     {3, length}});
    }
  }
  for (const std::int64_t length : {32'769, 70'001}) {
    all.push_back(
        {fmt::format("columns.sum.{}.{}", length, name(dtype)), "sum(x, -2)", {length, 13}});
  }
  return all;
}

constexpr DType kReduced[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

// Numbers whose sums are neither infinite nor NaN, and of which no two orders have the same.
HostArray make_rows(DType dtype, const Dims& shape) {
  HostArray rows = HostArray::contiguous(dtype, shape);
  std::mt19937_64 random(static_cast<std::uint64_t>(shape[0] * 31 + shape[1]));
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const auto drawn = static_cast<std::int64_t>(random() % 400'001) - 200'000;
    testing::set_bits(rows, i, encoded(static_cast<long double>(drawn) / 65'536, dtype));
  }
  return rows;
}

class BitEquality : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    const DeviceType type = std::get<0>(GetParam());
    if (!testing::has_device(type)) GTEST_SKIP() << jit::why_absent(type);
  }

  // Which NaN comes out is open, and with it the sign that copysign takes from one.
  std::string hash(const GoldenCall& call, const std::vector<HostArray>& inputs,
                   HostArray output) const {
    for (std::int64_t i = 0; i < output.size(); ++i) {
      std::uint64_t result = without_payload(testing::get_bits(output, i), output.dtype);
      const bool from_nan = call.text.starts_with("copysign") && is_floating(inputs[1].dtype) &&
                            std::isnan(decode(testing::get_bits(inputs[1], i), dtype()));
      testing::set_bits(output, i, from_nan ? 0 : result);
    }
    return hash_of(output);
  }
  static std::string hash_of(const HostArray& output) {
    return fmt::format("{:016x}", XXH3_64bits(output.bytes.data(), output.bytes.size()));
  }

  DType dtype() const { return std::get<1>(GetParam()); }

  Hashes run(const std::vector<GoldenCall>& calls, Accuracy accuracy) const {
    Hashes hashes;
    Options options;
    options.accuracy = accuracy;
    for (std::size_t begin = 0; begin < calls.size();) {
      std::size_t end = begin;
      std::string text;
      for (; end < calls.size() && end - begin < kOutputs; ++end) {
        if (calls[end].arity != calls[begin].arity) break;
        text += (end == begin ? "" : ", ") + calls[end].text;
      }
      const Function function = parse("bits", text, options);
      std::vector<HostArray> inputs;
      for (std::size_t i = 0; i < calls[begin].arity; ++i) inputs.push_back(make_input(dtype(), i));
      const std::vector<fusion::ArgumentType> types(inputs.size(), {dtype(), false, false});
      const fusion::TypedGraph typed =
          fusion::infer(fusion::parse(text), types, {}, Rounding::once, "bits");
      std::vector<HostArray> outputs;
      for (const fusion::NodeId output : typed.outputs)
        outputs.push_back(HostArray::contiguous(typed.nodes[output].dtype, {kCount}));
      testing::run_on({std::get<0>(GetParam()), 0}, function, inputs, outputs);
      for (std::size_t i = begin; i < end; ++i)
        hashes[calls[i].name] = hash(calls[i], inputs, outputs[i - begin]);
      begin = end;
    }
    return hashes;
  }

  void compare(const std::vector<GoldenCall>& all, const std::vector<Accuracy>& accuracies) const {
    ASSERT_FALSE(all.empty());
    const auto [device, dtype] = GetParam();
    if (updates_golden() && device == DeviceType::cpu) update_golden(run(all, Accuracy::storage));
    std::vector<GoldenCall> calls;
    testing::Share share(device, 9, testing::random_seed());
    for (const GoldenCall& call : all) {
      if (share.next()) calls.push_back(call);
    }
    const Hashes golden = read_golden();
    for (const Accuracy accuracy : accuracies) {
      std::string different;
      for (const auto& [name, hash] : run(calls, accuracy)) {
        const auto wanted = golden.find(name);
        if (wanted == golden.end() || wanted->second != hash) different += " " + name;
      }
      EXPECT_EQ(different, "") << (accuracy == Accuracy::strict ? "strict" : "storage");
    }
  }
};

// What the contract defines to the bit: what the op table bounds by the one rounding of the result,
// all operations on integers, and random numbers.
bool is_defined(const OpInfo& op, DType dtype) {
  if (op.rule == Rule::convert || !fusion::accepts(op, dtype)) return false;
  if (op.rule == Rule::random) return dtype == DType::u64 || dtype == DType::i32;
  if (op.rule == Rule::component) return dtype == DType::c64;
  if (dtype == DType::c64) {
    const auto bound = fusion::info(op.op).c64;
    return !bound || bound->same_bits;
  }
  const bool returns_integer = op.rule == Rule::same || op.rule == Rule::integral;
  return op.f32.own <= 0.5 || (returns_integer && is_integer(dtype));
}

std::vector<GoldenCall> op_calls(DType dtype) {
  constexpr std::string_view kOperands[] = {"x", "x, y", "x, y, z"};
  std::vector<GoldenCall> calls;
  for (const std::size_t arity : {1, 2, 3}) {
    for (const OpInfo& op : fusion::all_ops()) {
      if (op.arity != static_cast<int>(arity) || info(dtype).storage_only) continue;
      if (!is_defined(op, dtype)) continue;
      calls.push_back({fmt::format("{}.{}", op.name, name(dtype)),
                       fmt::format("{}({})", op.name, kOperands[arity - 1]), arity});
    }
  }
  if (info(dtype).storage_only) {  // computed as f32 or i32, which the others show
    for (const std::string_view op : {"add", "mul", "maximum", "less"}) {
      calls.push_back({fmt::format("{}.{}", op, name(dtype)), fmt::format("{}(x, y)", op), 2});
    }
  }
  if (dtype == DType::i32) {
    for (const std::string_view text : {"iota(i32)", "iota(i64)", "iota(0,f32)"})
      calls.push_back({fmt::format("{}", text), fmt::format("{}", text), 0});
  }
  return calls;
}

std::vector<GoldenCall> cast_calls(DType dtype) {
  std::vector<GoldenCall> calls;
  for (const DTypeInfo& to : kDTypes) {
    const bool parts = dtype == DType::c64 && to.dtype != DType::f32 && to.dtype != DType::f64;
    if (parts && to.dtype != DType::boolean) continue;
    calls.push_back(
        {fmt::format("cast.{}.{}", name(dtype), to.name), fmt::format("{}(x)", to.name), 1});
  }
  return calls;
}

TEST_P(BitEquality, OfEveryOpThatIsDefinedToTheBit) {
  // What an integer becomes a float for is shown by f32's.
  std::vector<Accuracy> accuracies = {Accuracy::storage};
  if (is_floating(dtype()) || dtype() == DType::c64) accuracies.push_back(Accuracy::strict);
  compare(op_calls(dtype()), accuracies);
}

TEST_P(BitEquality, OfCastsToEveryDtype) {
  compare(cast_calls(dtype()), {Accuracy::storage});  // no accuracy has conversions of its own
}

std::vector<DType> every_dtype() {
  std::vector<DType> dtypes;
  for (const DTypeInfo& entry : kDTypes) dtypes.push_back(entry.dtype);
  return dtypes;
}

class ReductionBits : public BitEquality {};

TEST_P(ReductionBits, AreTheSameOnEveryDevice) {
  const auto [device, dtype] = GetParam();
  Hashes hashes;
  testing::Share share(device, 8, testing::random_seed());
  for (const GoldenReduction& reduction : reductions(dtype)) {
    if (!share.next() && !updates_golden()) continue;
    const bool whole = reduction.text.starts_with("x /") || reduction.text.starts_with("cumsum");
    Dims shape = reduction.shape;
    if (!whole) shape[reduction.text.ends_with("-2)") ? 0 : 1] = 1;
    std::vector<HostArray> outputs = {HostArray::contiguous(dtype, shape)};
    const HostArray rows = make_rows(dtype, reduction.shape);
    std::vector<HostArray> inputs = {rows};
    // A matrix times its own first row.
    if (reduction.text.find('y') != std::string::npos)
      inputs.push_back(testing::part_of(rows, 0, 0, 1));
    testing::run_on({device, 0}, parse("reduction", reduction.text), inputs, outputs);
    hashes[reduction.name] = hash_of(outputs[0]);
  }
  if (updates_golden() && device == DeviceType::cpu) update_golden(hashes);
  const Hashes golden = read_golden();
  for (const auto& [name, hash] : hashes) {
    const auto wanted = golden.find(name);
    EXPECT_TRUE(wanted != golden.end() && wanted->second == hash) << name;
  }
}

// A hash that no test compares would say nothing, and go unnoticed.
TEST(BitEqualityGolden, HasEveryCallAndNoOther) {
  std::vector<std::string> called;
  for (const DType dtype : every_dtype()) {
    for (const GoldenCall& call : op_calls(dtype)) called.push_back(call.name);
    for (const GoldenCall& call : cast_calls(dtype)) called.push_back(call.name);
  }
  for (const DType dtype : kReduced) {
    for (const GoldenReduction& reduction : reductions(dtype)) called.push_back(reduction.name);
  }
  std::ranges::sort(called);
  std::vector<std::string> kept;
  for (const auto& [name, hash] : read_golden()) kept.push_back(name);
  EXPECT_EQ(called, kept);
}

INSTANTIATE_TEST_SUITE_P(Cpu, BitEquality,
                         ::testing::Combine(::testing::Values(DeviceType::cpu),
                                            ::testing::ValuesIn(every_dtype())),
                         testing::device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Devices, ReductionBits,
                         ::testing::Combine(::testing::Values(DeviceType::cpu, DeviceType::hip,
                                                              DeviceType::cuda),
                                            ::testing::ValuesIn(kReduced)),
                         testing::device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, BitEquality,
                         ::testing::Combine(::testing::Values(DeviceType::hip, DeviceType::cuda),
                                            ::testing::ValuesIn(every_dtype())),
                         testing::device_and_dtype_name);

}  // namespace
}  // namespace kiln
