// What a planning depends on of the sizes that it is made for: the extents that it meets, and every
// decision in which numbers made of them are compared. Who plans for several sizes and finds the
// same decisions knows under which conditions a plan holds for others
// (src/program/program_class.hpp). Recorded on the thread that plans, and only while somebody asks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kiln/dims.hpp"

namespace kiln::fusion {

/// A number that was computed from sizes alone by products, exact divisions or differences, with a
/// factor that does not depend on sizes.
struct SizeTerm {
  double factor = 1;
  std::int64_t number = 0;
};

/// What a decision found.
struct SizeFact {
  enum class Kind : std::uint8_t {
    sign,       ///< the sum of the terms is negative (-1), 0 or positive (1)
    divides,    ///< the second term divides the first (1), or does not (0)
    remainder,  ///< what is left when the first term is divided by the second
    splits,     ///< split_reductions.hpp: splits of rows; the extents of `from`, then those of `to`
    key_splits,  ///< infer/attention_space.hpp: splits of so many keys
  };
  Kind kind = Kind::sign;
  bool read_again = false;  ///< splits
  std::int64_t result = 0;
  std::vector<SizeTerm> terms;
};

/// While one lives, what is planned on its thread is recorded. They do not nest.
class SizeTrace {
 public:
  SizeTrace();
  ~SizeTrace();
  SizeTrace(const SizeTrace&) = delete;
  SizeTrace& operator=(const SizeTrace&) = delete;

  /// The thread's, or null.
  static SizeTrace* current();

  void add_extents(const Dims& shape);
  void add(SizeFact fact) { facts_.push_back(std::move(fact)); }

  /// Each once, in the order in which they came.
  const std::vector<std::int64_t>& extents() const { return extents_; }
  const std::vector<SizeFact>& facts() const { return facts_; }

 private:
  std::vector<std::int64_t> extents_;
  std::vector<SizeFact> facts_;
};

/// A sum of terms that is compared with 0. Does nothing but while a trace lives.
class SizeSum {
 public:
  SizeSum& add(double factor, std::int64_t number) {
    if (SizeTrace::current() != nullptr) terms_.push_back({factor, number});
    return *this;
  }
  SizeSum& add(double factor, const SizeSum& other) {
    for (const SizeTerm& term : other.terms_) terms_.push_back({factor * term.factor, term.number});
    return *this;
  }
  /// Records on which side of 0 it is.
  void decide() const;

 private:
  std::vector<SizeTerm> terms_;
};

/// Records which of two numbers is larger.
inline void trace_order(std::int64_t a, std::int64_t b) {
  if (SizeTrace::current() != nullptr) SizeSum().add(1, a).add(-1, b).decide();
}
/// The same for each of two lists of one length.
void trace_order(const Dims& a, const Dims& b);
/// Records whether `a` is a multiple of `b`, which is not 0.
void trace_divides(std::int64_t a, std::int64_t b);
/// Records what is left when `a` is divided by `b`, which is not 0.
void trace_remainder(std::int64_t a, std::int64_t b);
/// Records how many splits rows have.
void trace_splits(const Dims& from, const Dims& to, bool read_again, std::int64_t splits);
/// Records how many splits the keys of an attention have.
void trace_key_splits(std::int64_t keys, std::int64_t splits);

}  // namespace kiln::fusion
