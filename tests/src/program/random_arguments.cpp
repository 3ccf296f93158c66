#include "tests/src/program/random_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/support/arrays.hpp"

namespace kiln::testing {
namespace {

void fill(HostArray& array, std::mt19937_64& random) {
  const bool coarse = random() % 2 == 0;  // many equal ones
  for (std::int64_t n = 0; n < array.size(); ++n) {
    const auto draw = static_cast<double>(random() % 4097) / 4096;
    std::uint64_t pattern = 0;
    if (is_floating(array.dtype)) {
      const double number = coarse ? std::round(draw * 32) / 4 - 4 : draw * 8 - 4;
      pattern = bits_of(number, array.dtype);
    } else if (array.dtype == DType::boolean) {
      pattern = random() % 2;
    } else {
      const auto whole = static_cast<std::int64_t>(random() % 19) - 9;
      const bool is_unsigned = kind(array.dtype) == Kind::unsigned_integer;
      pattern = static_cast<std::uint64_t>(is_unsigned ? std::abs(whole) : whole);
    }
    set_bits(array, place_of(array, n), pattern);
  }
}

}  // namespace

HostArray with_random_layout(DType dtype, const Dims& shape, std::mt19937_64& random) {
  Dims strides(shape.size(), 0);
  std::vector<std::size_t> order(shape.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  std::int64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = step;
    step = step * std::max<std::int64_t>(1, shape[order[k]]) +
           static_cast<std::int64_t>(random() % 3 == 0);
  }
  return HostArray::strided(dtype, shape, strides);
}

std::vector<HostArray> random_arguments(const RandomProgram& program, std::uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x9e3779b97f4a7c15);
  std::vector<HostArray> arguments;
  for (std::size_t i = 0; i < program.dtypes.size(); ++i) {
    arguments.push_back(with_random_layout(program.dtypes[i], program.shapes[i], random));
    fill(arguments.back(), random);
  }
  return arguments;
}

}  // namespace kiln::testing
