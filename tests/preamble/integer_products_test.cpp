// Products on the CPU, as every kind of processor has them: programs with the device code are
// compiled for each instruction set and by each compiler that is there, and compare integer
// products with sums that are added up one by one, and elements as vectors with their conversions.
// What this processor has not is compiled only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/host_compiler.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln {
namespace {

constexpr const char* kProgram = R"(
#include "preamble/product_integers.h"
using namespace kiln;
static u32 state = 1;
static u8 byte() { return u8((state = state * 1664525u + 1013904223u) >> 24); }
static int failures = 0;
template <class T>
static int number(const u8* bytes, int i) {
  if (is_same<T, u8>()) return bytes[i];
  if (is_same<T, i8>()) return i8(bytes[i]);
  const int half = bytes[i / 2] >> i % 2 * 4 & 15;
  return is_same<T, u4>() || half < 8 ? half : half - 16;
}
template <class T, int Lanes>
static auto weights_at(const u8* bytes) {
  const T* row = reinterpret_cast<const T*>(bytes);
  if constexpr (is_packed<T>()) return dot_weights<Lanes, 1>(packed(row, 0), 0);
  else return dot_weights<Lanes, 1>(row, 0);
}
template <class T, int Lanes>
static void check(bool extremes) {
  u8 weights[Lanes];
  i8 x[Lanes];
  for (u8& weight : weights) weight = extremes ? (byte() & 1) * 255 + (byte() & 1) * 128 : byte();
  for (i8& one : x) one = i8(extremes ? 127 + (byte() & 1) : byte());
  const int zero_points[] = {0, 8, -128, 255};
  for (const int zero_point : zero_points) {
    i64 want = 0;
    for (int i = 0; i < Lanes; ++i) want += (number<T>(weights, i) - zero_point) * x[i];
    const auto vector = dot_vector<T, Lanes, 1>(x, 0);
    const Dots dots = dot_products(weights_at<T, Lanes>(weights), vector);
    const Dots sum_of_x = activation_sum(vector);
    WholeSums whole;
    ScaledSums scaled;
    add_whole(whole, centered_products<T>(dots, sum_of_x, zero_point));
    const f32 center = center_of<T>(f32(zero_point));
    add_scaled(scaled, zero_point == 0 ? centered_floats<T>(dots, as_floats(sum_of_x))
                                       : centered_floats(dots, as_floats(sum_of_x), center), 2.0f);
    failures += total(whole) != want;
    failures += total(scaled) != f32(2 * want);
  }
}
template <class T>
static void check_all() {
  for (int i = 0; i < 64; ++i) {
    check<T, 32>(i % 2 == 0);
    check<T, 64>(i % 2 == 0);
  }
}
int main() {
  check_all<u4>();
  check_all<i4>();
  check_all<u8>();
  check_all<i8>();
  return failures != 0;
}
)";

// Compares each 8-bit float, and each packed element alone and looked up, with its number, and
// zero points of vectors of groups with those of one.
constexpr const char* kElements = R"(
#include "preamble/product_vectors.h"
using namespace kiln;
static int failures = 0;
static void compare(f32 got, f32 want) {
  const bool both_nan = got != got && want != want;
  failures += !both_nan && bit_cast<u32>(got) != bit_cast<u32>(want);
}
template <class T>
static void check_bytes() {
  T elements[256];
  for (int i = 0; i < 256; ++i) elements[i] = bit_cast<T>(u8(i));
  for (int i = 0; i < 256; ++i) {
    compare(vectors_of(elements, 0)[i / kSimd][i % kSimd], to<f32>(elements[i]));
    const auto beside = in_packed_lanes(vectors_of(elements, 0));
    compare(in_order(beside[i / kSimd])[i % kSimd], to<f32>(elements[i]));
  }
}
static void check_halves() {
  static f16 elements[1 << 16];
  for (int i = 0; i < 1 << 16; ++i) elements[i] = f16{u16(i)};
  for (int i = 0; i < 1 << 16; ++i) {
    compare(vectors_of(elements, 0)[i / kSimd][i % kSimd], to<f32>(elements[i]));
  }
}
template <class T>
static void check_codes() {
  u8 bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = u8(i | (15 - i) << 4);
  const T* row = reinterpret_cast<const T*>(bytes);
  const auto value = [](Floats number) { return number * 3.0f + 1.0f; };
  const auto vectors = vectors_of(packed(row, 0), 0);
  const auto results = results_of(vectors, value);
  for (int i = 0; i < 32; ++i) {
    const f32 number = to<f32>(element(packed(row, i)));
    compare(in_order(vectors[i / kSimd])[i % kSimd], number);
    compare(in_order(results[i / kSimd])[i % kSimd], number * 3.0f + 1.0f);
  }
}
static void check_zero_points() {
  Groups<f32> points;
  Groups<f32> divisors;
  const f32 all[] = {0.5f, -0.4f, 1e30f, -3.7f, 0.0f, 1024.4f, -1025.0f, bit_cast<f32>(0x7fc00000u)};
  for (u32 g = 0; g < kGroups; ++g) points[g] = all[g % 8];
  for (u32 g = 0; g < kGroups; ++g) divisors[g] = g % 5 == 0 ? 0.0f : 0.25f * f32(g);
  Groups<f32> whole;
  Groups<f32> quotients;
  KILN_EACH_GROUP_VECTOR(g) {
    whole.set(g, nearest_zero_point(points[g]));
    quotients.set(g, nearest_zero_point(points[g], divisors[g]));
  }
  for (u32 g = 0; g < kGroups; ++g) {
    compare(whole[g], nearest_zero_point(points[g]));
    compare(quotients[g], nearest_zero_point(points[g], divisors[g]));
  }
}
int main() {
  check_zero_points();
  check_bytes<f8e4m3>();
  check_bytes<f8e5m2>();
  check_bytes<f8e4m3fnuz>();
  check_bytes<f8e5m2fnuz>();
  check_bytes<u8>();
  check_bytes<i8>();
  check_halves();
  check_codes<u4>();
  check_codes<i4>();
  check_codes<f4e2m1>();
  return failures != 0;
}
)";

// Expects that a program fails on no processor.
void check_on_every_processor(const char* text) {
  struct Features {
    std::vector<std::string> flags;
    bool present;
  };
#if defined(__x86_64__)
  const std::vector<std::string> avx512 = {"-mavx2",     "-mfma",       "-mf16c",
                                           "-mavx512f",  "-mavx512bw",  "-mavx512vl",
                                           "-mavx512dq", "-mavx512vnni"};
  const Features all[] = {{{}, true},
                          {{"-mavx2", "-mfma"}, __builtin_cpu_supports("avx2") != 0},
                          {{"-mavx2", "-mfma", "-mf16c"}, __builtin_cpu_supports("avx2") != 0},
                          {{"-mavx2", "-mfma", "-mavxvnni"}, false},
                          {avx512, __builtin_cpu_supports("avx512vnni") != 0}};
#else
  const Features all[] = {{{}, true}};
#endif
  const testing::TemporaryDirectory directory;
  const std::string source = directory.put("products.cpp", text);
  for (const char* compiler : {KILN_TEST_COMPILER, "g++", "clang++"}) {
    if (!testing::run_compiler({compiler, "--version"}).succeeded()) continue;
    for (const auto& [flags, present] : all) {
      SCOPED_TRACE(fmt::format("{} {}", compiler, flags.empty() ? "" : flags.back()));
      const std::string program = directory.path("products");
      std::vector<std::string> command = {compiler, "-std=c++17", "-O2", "-w",
                                          "-I" KILN_TEST_SOURCE};
      command.insert(command.end(), flags.begin(), flags.end());
      command.insert(command.end(), {"-o", program, source});
      const base::CommandResult compiled = testing::run_compiler(command);
      ASSERT_TRUE(compiled.succeeded()) << compiled.errors;
      EXPECT_TRUE(!present || testing::run_compiler({program}).succeeded());
    }
  }
}

TEST(IntegerProducts, AreExactOnEveryProcessor) { check_on_every_processor(kProgram); }

TEST(ProductVectors, HoldTheNumbersOfElementsOnEveryProcessor) {
  check_on_every_processor(kElements);
}

}  // namespace
}  // namespace kiln
