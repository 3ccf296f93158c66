#include "program/size_formulas.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace kiln {
namespace {

__extension__ using Wide = __int128;

inline bool evaluate_product(const SizeFormula::Product& product,
                             std::span<const std::int64_t> sizes, std::int64_t& value) {
  value = product.factor;
  for (std::size_t i = 0; i < product.count; ++i) {
    if (__builtin_mul_overflow(value, sizes[product.sizes[i]], &value)) return false;
  }
  return !SizeFormula::is_too_large(value);
}

SizeFormula::Product with_size(SizeFormula::Product product, std::size_t size) {
  product.sizes[product.count++] = static_cast<std::uint8_t>(size);
  return product;
}

SizeFormula::Product times(std::int64_t factor, SizeFormula::Product product) {
  product.factor = factor;
  return product;
}

}  // namespace

bool SizeFormula::evaluate(std::span<const std::int64_t> sizes, std::int64_t& value) const {
  if (!evaluate_product(terms[0], sizes, value)) return false;
  if (terms[1].factor != 0) {
    std::int64_t second = 0;
    if (!evaluate_product(terms[1], sizes, second)) return false;
    value += second;
  }
  if (divisor == 1) return true;
  const std::int64_t sum = value;
  value = sum / divisor;
  return value * divisor == sum;
}

FormulaFinder::FormulaFinder(std::vector<std::vector<std::int64_t>> samples, std::size_t factors)
    : samples_(std::move(samples)) {
  const std::size_t sizes = samples_.front().size();
  std::vector<SizeFormula::Product> products{{1, {}, 0}};
  for (std::size_t begin = 0; begin < products.size(); ++begin) {
    const SizeFormula::Product product = products[begin];
    add_monomial(product);
    if (product.count == product.sizes.size()) continue;
    const std::size_t least = product.count == 0 ? 0 : product.sizes[product.count - 1];
    for (std::size_t size = least; size < factors; ++size) {
      products.push_back(with_size(product, size));
    }
  }
  for (std::size_t size = factors; size < sizes; ++size) {
    const SizeFormula::Product alone = with_size({1, {}, 0}, size);
    add_monomial(alone);
    for (std::size_t other = 0; other < factors; ++other) add_monomial(with_size(alone, other));
  }
}

void FormulaFinder::add_monomial(const SizeFormula::Product& product) {
  Monomial monomial{product, {}};
  for (const std::vector<std::int64_t>& sample : samples_) {
    std::int64_t value = 0;
    if (!evaluate_product(product, sample, value)) return;
    monomial.values.push_back(value);
  }
  monomials_.push_back(std::move(monomial));
}

std::optional<std::uint16_t> FormulaFinder::find(const std::vector<std::int64_t>& values) {
  if (const auto known = known_.find(values); known != known_.end()) return known->second;
  for (const std::int64_t value : values) {
    if (SizeFormula::is_too_large(value)) return std::nullopt;
  }
  std::optional<SizeFormula> formula = find_product(values);
  if (!formula) formula = find_sum(values);
  if (!formula || formulas_.size() == UINT16_MAX) return std::nullopt;
  const auto position = static_cast<std::uint16_t>(formulas_.size());
  formulas_.push_back(*formula);
  known_.emplace(values, position);
  return position;
}

std::optional<SizeFormula> FormulaFinder::find_product(std::span<const std::int64_t> values) const {
  for (const Monomial& monomial : monomials_) {
    const std::int64_t one = monomial.values[0];
    if (one == 0) continue;
    bool fits = true;
    for (std::size_t i = 0; i < values.size() && fits; ++i) {
      fits = Wide{values[i]} * one == Wide{values[0]} * monomial.values[i];
    }
    if (!fits) continue;
    const std::int64_t common = std::gcd(values[0], one);
    return SizeFormula{{times(values[0] / common, monomial.product)}, one / common};
  }
  return std::nullopt;
}

// By two plans the factors of two products are known; the others have to agree.
std::optional<SizeFormula> FormulaFinder::find_sum(std::span<const std::int64_t> values) const {
  constexpr std::int64_t kMostSummed = 1 << 30;  // products of four such numbers are exact
  const auto is_small = [](std::span<const std::int64_t> of) {
    for (const std::int64_t value : of) {
      if (value > kMostSummed || value < -kMostSummed) return false;
    }
    return true;
  };
  if (!is_small(values)) return std::nullopt;
  for (std::size_t b = 1; b < monomials_.size(); ++b) {
    const Monomial& second = monomials_[b];
    if (!is_small(second.values)) continue;
    for (std::size_t a = 0; a < b; ++a) {
      const Monomial& first = monomials_[a];
      if (!is_small(first.values)) continue;
      const std::int64_t divisor =
          first.values[0] * second.values[1] - first.values[1] * second.values[0];
      if (divisor == 0) continue;
      const std::int64_t of_first = values[0] * second.values[1] - values[1] * second.values[0];
      const std::int64_t of_second = first.values[0] * values[1] - first.values[1] * values[0];
      bool fits = true;
      for (std::size_t i = 2; i < values.size() && fits; ++i) {
        fits = Wide{of_first} * first.values[i] + Wide{of_second} * second.values[i] ==
               Wide{divisor} * values[i];
      }
      if (!fits) continue;
      const std::int64_t common =
          std::gcd(std::gcd(of_first, of_second), divisor) * (divisor < 0 ? -1 : 1);
      return SizeFormula{
          {times(of_first / common, first.product), times(of_second / common, second.product)},
          divisor / common};
    }
  }
  return std::nullopt;
}

// ---- Sums of products --------------------------------------------------------------------------

void add(SizePolynomial& sum, double factor, const SizeFormula& formula) {
  for (const SizeFormula::Product& term : formula.terms) {
    if (term.factor == 0) continue;
    sum[{term.sizes.begin(), term.sizes.begin() + term.count}] +=
        factor * static_cast<double>(term.factor) / static_cast<double>(formula.divisor);
  }
}

void drop_zeros(SizePolynomial& sum) {
  double largest = 0;
  for (const auto& [product, factor] : sum) largest = std::max(largest, std::abs(factor));
  std::erase_if(sum, [&](const auto& term) { return std::abs(term.second) <= 1e-9 * largest; });
}

int known_sign(const SizePolynomial& sum, std::size_t factors) {
  const auto is_positive = [&](double sign) {
    SizePolynomial left;  // of what is positive
    for (const auto& [product, factor] : sum) {
      const bool axes = std::ranges::all_of(product, [&](auto i) { return i < factors; });
      if (!axes) return false;
      if (factor * sign > 0) left[product] = factor * sign;
    }
    for (const auto& [product, factor] : sum) {
      double missing = -factor * sign;
      for (auto& [larger, more] : left) {
        if (missing <= 0) break;
        if (!std::ranges::includes(larger, product)) continue;
        const double times = std::pow(2, larger.size() - product.size());
        const double taken = std::min(missing, more * times);
        missing -= taken;
        more -= taken / times;
      }
      if (missing > 0) return false;
    }
    return std::ranges::any_of(left, [](const auto& term) { return term.second > 0; });
  };
  return is_positive(1) ? 1 : is_positive(-1) ? -1 : 0;
}

}  // namespace kiln
