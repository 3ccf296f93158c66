#include "numerics/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <unordered_set>

#include "fusion/graph/number.hpp"

namespace kiln::numerics {
namespace {

// Numbers of one dtype, each once, up to a count.
class Sample {
 public:
  Sample(DType dtype, std::size_t count) : dtype_(dtype), count_(count) {}

  bool full() const { return values_.size() == count_; }
  void add_bits(std::uint64_t bits) {
    if (!full() && seen_.insert(bits).second) values_.push_back(bits);
  }
  void add(double x) { add_bits(fusion::encode(x, dtype_)); }
  void add_both(double x) {
    add(x);
    add(-x);
  }
  std::vector<std::uint64_t> take() { return std::move(values_); }

 private:
  DType dtype_;
  std::size_t count_;
  std::vector<std::uint64_t> values_;
  std::unordered_set<std::uint64_t> seen_;
};

std::uint64_t mask_of(DType dtype) {
  return bits(dtype) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits(dtype)) - 1;
}

std::uint64_t complex_bits(std::uint64_t re, std::uint64_t im) { return re | im << 32; }

std::vector<std::uint64_t> complex_sample(std::size_t count) {
  Sample numbers(DType::c64, count);
  const std::vector<std::uint64_t> parts = sample(DType::f32, 4096);
  const auto specials = static_cast<std::size_t>(std::sqrt(static_cast<double>(count) / 4));
  for (std::size_t i = 0; i < std::min(specials, parts.size()); ++i) {
    for (std::size_t k = 0; k < std::min(specials, parts.size()); ++k)
      numbers.add_bits(complex_bits(parts[i], parts[k]));
  }
  std::mt19937_64 random(20250102);
  const auto part = [&] { return parts[random() % parts.size()]; };
  for (double angle = 0; !numbers.full(); angle += 0.618) {
    numbers.add_bits(complex_bits(fusion::encode(std::cos(angle), DType::f32),
                                  fusion::encode(std::sin(angle), DType::f32)));
    for (int i = 0; i < 3; ++i) numbers.add_bits(complex_bits(part(), part()));
  }
  return numbers.take();
}

}  // namespace

Inputs Inputs::all(DType dtype) {
  Inputs inputs;
  inputs.swept_ = inputs.count_ = std::uint64_t{1} << bits(dtype);
  inputs.complete_ = true;
  return inputs;
}

Inputs Inputs::every(DType dtype, std::uint64_t stride, std::vector<std::uint64_t> others) {
  Inputs inputs;
  inputs.stride_ = stride;
  inputs.swept_ = ((std::uint64_t{1} << bits(dtype)) - 1) / stride + 1;
  inputs.count_ = inputs.swept_ + others.size();
  inputs.values_ = std::move(others);
  return inputs;
}

Inputs Inputs::list(std::vector<std::uint64_t> values) {
  Inputs inputs;
  inputs.count_ = values.size();
  inputs.values_ = std::move(values);
  return inputs;
}

Inputs Inputs::tuples(std::vector<std::uint64_t> set, int arity) {
  Inputs inputs;
  inputs.count_ = 1;
  for (int i = 0; i < arity; ++i) inputs.count_ *= set.size();
  inputs.values_ = std::move(set);
  inputs.arity_ = arity;
  return inputs;
}

std::uint64_t Inputs::operand(int position, std::uint64_t index) const {
  if (arity_ == 1) return index < swept_ ? index * stride_ : values_[index - swept_];
  for (int i = position + 1; i < arity_; ++i) index /= values_.size();
  return values_[index % values_.size()];
}

std::vector<std::uint64_t> sample(DType dtype, std::size_t count) {
  if (dtype == DType::c64) return complex_sample(count);
  Sample numbers(dtype, count);
  const std::uint64_t infinity = fusion::encode(HUGE_VAL, dtype);
  numbers.add_both(0);
  numbers.add_both(HUGE_VAL);
  numbers.add(std::nan(""));
  for (const std::uint64_t end : {std::uint64_t{1}, infinity - 1}) {  // smallest and largest
    numbers.add_bits(end);
    numbers.add_bits(end | fusion::encode(-0.0, dtype));
  }
  for (int i = 1; i <= 20; ++i) numbers.add_both(i * 0.5);
  for (const double x : {0.1, 10.5, 100.0, 1e-3, 88.0, 1e4}) numbers.add_both(x);

  // Every power of two, or so many that with their neighbours and signs they are half of all.
  const int largest = std::ilogb(fusion::decode(infinity - 1, dtype));
  const int smallest = std::ilogb(fusion::decode(1, dtype));
  const auto most = static_cast<int>(std::max<std::size_t>(count / 12, 1));
  const int step = bits(dtype) == 16 ? 1 : std::max(1, (largest - smallest) / most);
  for (int exponent = smallest; exponent <= largest; exponent += step)
    numbers.add_both(std::ldexp(1.0, exponent));
  for (int exponent = smallest; exponent <= largest; exponent += step) {
    const std::uint64_t power = fusion::encode(std::ldexp(1.0, exponent), dtype);
    numbers.add_bits(power + 1);
    numbers.add_bits(power - 1);
  }

  std::mt19937_64 random(20250101);
  std::normal_distribution<double> moderate(0, 4);
  while (!numbers.full()) {
    numbers.add_bits(random() & mask_of(dtype));
    numbers.add(moderate(random));
  }
  return numbers.take();
}

}  // namespace kiln::numerics
