// Integer products on the CPU, as every kind of processor has them: a program with the device code
// is compiled for each instruction set and by each compiler that is there, and compares them with
// sums that are added up one by one. What this processor has not is compiled only.
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
    const Dots products = centered_products<T>(
        dot_products(weights_at<T, Lanes>(weights), vector), activation_sum(vector), zero_point);
    WholeSums whole;
    ScaledSums scaled;
    add_whole(whole, products);
    add_scaled(scaled, products, 0.5f, 4.0f);
    scaled.end_block();
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

TEST(IntegerProducts, AreExactOnEveryProcessor) {
  struct Features {
    std::vector<std::string> flags;
    bool present;
  };
#if defined(__x86_64__)
  const std::vector<std::string> avx512 = {"-mavx2",     "-mfma",      "-mavx512f",   "-mavx512bw",
                                           "-mavx512vl", "-mavx512dq", "-mavx512vnni"};
  const Features all[] = {{{}, true},
                          {{"-mavx2", "-mfma"}, __builtin_cpu_supports("avx2") != 0},
                          {{"-mavx2", "-mfma", "-mavxvnni"}, false},
                          {avx512, __builtin_cpu_supports("avx512vnni") != 0}};
#else
  const Features all[] = {{{}, true}};
#endif
  const testing::TemporaryDirectory directory;
  const std::string source = directory.put("products.cpp", kProgram);
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

}  // namespace
}  // namespace kiln
