#include "fusion/schedule/overlap.hpp"

#include <algorithm>
#include <numeric>

#include "fusion/schedule/scratch.hpp"

namespace kiln::fusion {
namespace {

__extension__ using Wide = __int128;  // sums of products of 63-bit numbers

// A term of the sum: coefficient * n with 0 <= n <= most.
struct StrideTerm {
  Wide coefficient;
  Wide most;
};

// A number whose product with `a` leaves 1 modulo `modulus`, which has no divisor with `a`.
Wide inverse(Wide a, Wide modulus) {
  Wide factor = 0;
  Wide next_factor = 1;
  Wide rest = modulus;
  Wide next_rest = a % modulus;
  while (next_rest != 0) {
    const Wide times = rest / next_rest;
    std::swap(factor -= times * next_factor, next_factor);
    std::swap(rest -= times * next_rest, next_rest);
  }
  return factor < 0 ? factor + modulus : factor;
}

// Is there a choice of every n such that the terms sum to `target`? Terms are in falling order of
// their coefficients; reach[i] and divisor[i] are the largest sum and the greatest common divisor
// of the terms from i on.
class Search {
 public:
  explicit Search(ScratchVector<StrideTerm> terms) : terms_(std::move(terms)) {
    reach_.assign(terms_.size() + 1, 0);
    divisor_.assign(terms_.size() + 1, 0);
    for (std::size_t i = terms_.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + terms_[i].coefficient * terms_[i].most;
      Wide a = terms_[i].coefficient;
      Wide b = divisor_[i + 1];
      while (b != 0) std::swap(a %= b, b);
      divisor_[i] = a;
    }
  }

  bool reaches(Wide target) { return reaches(target, 0); }

 private:
  bool reaches(Wide target, std::size_t i) {
    if (target < 0 || target > reach_[i]) return false;
    if (target == 0) return true;
    if (target % divisor_[i] != 0) return false;
    if (--steps_left_ <= 0) return true;
    const StrideTerm& term = terms_[i];
    const Wide lowest =
        std::max<Wide>(0, (target - reach_[i + 1] + term.coefficient - 1) / term.coefficient);
    Wide highest = std::min(term.most, target / term.coefficient);
    // Only every so many n leave something that the terms after this one divide.
    Wide step = 1;
    if (divisor_[i + 1] != 0) {
      step = divisor_[i + 1] / divisor_[i];
      const Wide first =
          target / divisor_[i] % step * inverse(term.coefficient / divisor_[i], step) % step;
      highest -= ((highest - first) % step + step) % step;
    }
    for (Wide n = highest; n >= lowest; n -= step) {
      if (reaches(target - n * term.coefficient, i + 1)) return true;
    }
    return false;
  }

  ScratchVector<StrideTerm> terms_;
  ScratchVector<Wide> reach_;
  ScratchVector<Wide> divisor_;
  int steps_left_ = 20'000;
};

}  // namespace

bool overlaps(const ByteView& a, const ByteView& b) {
  // Bytes are equal where sum(i * s) + x - sum(j * t) - y = address_b - address_a. Every term is
  // turned to a positive coefficient, which moves the target.
  ScratchVector<StrideTerm> terms;
  Wide target = static_cast<Wide>(b.address) - static_cast<Wide>(a.address);
  const auto add = [&](Wide coefficient, Wide most) {
    if (most == 0 || coefficient == 0) return;
    if (coefficient < 0) {
      coefficient = -coefficient;
      target += coefficient * most;
    }
    terms.push_back({coefficient, most});
  };
  for (std::size_t k = 0; k < a.shape.size(); ++k) {
    if (a.shape[k] == 0) return false;
    add(a.strides[k], a.shape[k] - 1);
  }
  for (std::size_t k = 0; k < b.shape.size(); ++k) {
    if (b.shape[k] == 0) return false;
    add(-static_cast<Wide>(b.strides[k]), b.shape[k] - 1);
  }
  add(1, a.element_bytes - 1);
  add(-1, b.element_bytes - 1);
  std::ranges::sort(terms, std::greater<>(), &StrideTerm::coefficient);
  ScratchVector<StrideTerm> merged;
  for (const StrideTerm& term : terms) {
    if (!merged.empty() && merged.back().coefficient == term.coefficient) {
      merged.back().most += term.most;
    } else {
      merged.push_back(term);
    }
  }
  return Search(std::move(merged)).reaches(target);
}

bool overlaps_itself(const ByteView& view) {
  if (std::ranges::find(view.shape, 0) != view.shape.end()) return false;
  // Two elements differ first along some axis k, by at least one step: elements of the axes after k
  // are compared with those one step or more along k. Only distances matter, so the first stays at
  // zero, and the address is one from which no step leaves 64 bits.
  constexpr std::uint64_t kMiddle = std::uint64_t{1} << 63;
  for (std::size_t k = 0; k < view.shape.size(); ++k) {
    if (view.shape[k] == 1) continue;
    const std::span<const std::int64_t> shape(view.shape);
    const std::span<const std::int64_t> strides(view.strides);
    const ByteView rest{kMiddle, view.element_bytes, Dims(shape.subspan(k + 1)),
                        Dims(strides.subspan(k + 1))};
    ByteView further{kMiddle + static_cast<std::uint64_t>(view.strides[k]), view.element_bytes,
                     Dims(shape.subspan(k)), Dims(strides.subspan(k))};
    further.shape[0] -= 1;
    if (overlaps(rest, further)) return true;
  }
  return false;
}

}  // namespace kiln::fusion
