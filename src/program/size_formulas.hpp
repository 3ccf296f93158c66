// Numbers of a plan as functions of the sizes of a call: found from several plans of one structure,
// and evaluated for other sizes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace kiln {

/// (f0 * a * b ... + f1 * c * d ...) / divisor.
struct SizeFormula {
  struct Product {
    std::int64_t factor = 0;
    std::array<std::uint8_t, 4> sizes{};  ///< positions, in order; one may come more than once
    std::uint8_t count = 0;
    friend bool operator==(const Product&, const Product&) = default;
  };
  std::array<Product, 2> terms{};
  std::int64_t divisor = 1;

  /// False where that is no whole number or beyond 2^50.
  bool evaluate(std::span<const std::int64_t> sizes, std::int64_t& value) const;
  bool is_constant() const { return terms[0].count == 0 && terms[1].factor == 0; }
  /// A factor and sizes alone.
  bool is_product() const { return terms[1].factor == 0 && divisor == 1; }
  static bool is_too_large(std::int64_t value) { return value > kMost || value < -kMost; }

  static constexpr std::int64_t kMost = std::int64_t{1} << 50;
};

/// Finds the formulas of numbers that several plans have.
class FormulaFinder {
 public:
  /// `samples`: the sizes that each plan was made for. Of them the first `factors` are multiplied
  /// with each other, up to four; each of the others comes once, with no more than one of those.
  FormulaFinder(std::vector<std::vector<std::int64_t>> samples, std::size_t factors);

  /// The position of the formula that gives values[i] for samples[i]; nothing if none is found.
  std::optional<std::uint16_t> find(const std::vector<std::int64_t>& values);

  const std::vector<SizeFormula>& formulas() const { return formulas_; }

 private:
  struct Monomial {
    SizeFormula::Product product;
    std::vector<std::int64_t> values;  ///< of each sample
  };

  void add_monomial(const SizeFormula::Product& product);
  std::optional<SizeFormula> find_product(std::span<const std::int64_t> values) const;
  std::optional<SizeFormula> find_sum(std::span<const std::int64_t> values) const;

  std::vector<std::vector<std::int64_t>> samples_;
  std::vector<Monomial> monomials_;  ///< of fewer sizes first
  std::vector<SizeFormula> formulas_;
  std::map<std::vector<std::int64_t>, std::uint16_t> known_;
};

/// A sum of products of sizes: the positions in a product, in order, and its factor.
using SizePolynomial = std::map<std::vector<std::uint8_t>, double>;
void add(SizePolynomial& sum, double factor, const SizeFormula& formula);
/// Without the terms that are 0 but for rounding.
void drop_zeros(SizePolynomial& sum);
/// 1 if a sum is positive whatever the first `factors` sizes are, which are 2 or more, and it has
/// no others; -1 if it is negative, 0 if that is not known.
int known_sign(const SizePolynomial& sum, std::size_t factors);

}  // namespace kiln
