// All 2^32 inputs of every unary f32 function, and all pairs of 2,048 values of the 16-bit types.
// Hours of work, which is why continuous integration takes strides instead (unary_test.cpp,
// binary_test.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "tests/preamble/functions.hpp"

namespace kiln::test {
namespace {

using fusion::Op;

// Runs work(i) for every i below `count`, on every core.
template <class Work>
void in_parallel(std::uint64_t count, Work work) {
  std::atomic<std::uint64_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = next++; i < count; i = next++) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void merge(Errors& into, const Errors& part) {
  into.tried += part.tried;
  into.misrounded += part.misrounded;
  if (part.largest <= into.largest) return;
  into.largest = part.largest;
  into.at = part.at;
  into.at_second = part.at_second;
}

class Sweep : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Sweep, EveryF32IsWithinTheTablesBound) {
  const UnaryFunction<f32>& function = unary_functions<f32>()[GetParam()];
  Errors errors;
  std::mutex mutex;
  in_parallel(4096, [&](std::uint64_t chunk) {
    Errors part;
    for (std::uint64_t i = chunk << 20; i < (chunk + 1) << 20; ++i) {
      const f32 x = from_pattern<f32>(i);
      const long double operand[] = {x};
      const long double exact = exact_value(function.op, DType::f32, operand);
      part.add(counted_error(function.op, function.standard(x), exact, operand, DType::f32), x);
    }
    const std::scoped_lock lock(mutex);
    merge(errors, part);
  });
  const fusion::OpInfo& op = info(function.op);
  std::printf("%-10s f32   %.5f ULP at %a, %.5f %% misrounded of all\n",
              std::string(op.name).c_str(), errors.largest, static_cast<double>(errors.at),
              errors.share());
  EXPECT_LE(errors.largest, op.f32.own);
  EXPECT_LE(op.f32.own, std::max(2 * errors.largest, 0.51)) << "the bound is loose";
}

INSTANTIATE_TEST_SUITE_P(Unary, Sweep,
                         ::testing::Range(std::size_t{0}, unary_functions<f32>().size()),
                         [](const auto& function) {
                           return std::string(
                               fusion::info(unary_functions<f32>()[function.param].op).name);
                         });

template <class T>
void expect_all_pairs_within_bound() {
  std::vector<T> values;
  for (std::uint64_t p : patterns(16, 3000)) values.push_back(from_pattern<T>(p));
  values.resize(2048);
  for (const BinaryFunction<f32>& f : binary_functions<f32>()) {
    if (f.op == Op::nextafter) continue;  // steps in the dtype itself: special_test.cpp
    Errors errors;
    std::mutex mutex;
    in_parallel(values.size(), [&](std::uint64_t row) {
      Errors part;
      const f32 a = to<f32>(values[row]);
      for (const T stored : values) {
        const f32 b = to<f32>(stored);
        const long double operands[] = {a, b};
        const long double exact = exact_value(f.op, kDTypeOf<T>, operands);
        const f32 result = to<f32>(to<T>(f.standard(a, b)));
        part.add(counted_error(f.op, result, exact, operands, kDTypeOf<T>), a, b);
      }
      const std::scoped_lock lock(mutex);
      merge(errors, part);
    });
    EXPECT_LE(errors.largest, fusion::kStorageBound)
        << info(f.op).name << " of " << static_cast<double>(errors.at) << " and "
        << static_cast<double>(errors.at_second);
  }
}
TEST(Pairs, OfF16AreStoredWithin51HundredthsOfAnUlp) { expect_all_pairs_within_bound<f16>(); }
TEST(Pairs, OfBf16AreStoredWithin51HundredthsOfAnUlp) { expect_all_pairs_within_bound<bf16>(); }

}  // namespace
}  // namespace kiln::test
