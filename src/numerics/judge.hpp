// Judges the results of one function: how far each is from the exact one, which the reference
// interpreter computes in long double, or which follows from a composition's own definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "numerics/exact_compositions.hpp"
#include "numerics/subjects.hpp"

namespace kiln::numerics {

using Bytes = std::vector<std::byte>;

/// What was found so far, merged from all threads.
struct Found {
  std::uint64_t misrounded = 0;
  double largest = 0;
  std::uint64_t at = 0;  ///< the index of the inputs
  double fast = 0;       ///< the largest of fusion::fast_error

  /// `error` in units of the result, `counted` in those that the bound counts.
  void add(double error, double counted, std::uint64_t index);
  void join(const Found& other);
};

class Judge {
 public:
  /// `subject` must outlive it.
  Judge(const Subject& subject, DType dtype);

  /// The dtype of the results: the operands', or f32 where complex numbers have a real one.
  DType result() const { return result_; }

  /// Compares results [begin, end) of a chunk whose first input has the index `first`.
  Found compare(const std::vector<Bytes>& operands, const Bytes& results, std::uint64_t begin,
                std::uint64_t end, std::uint64_t first) const;

 private:
  struct Element;
  void add_real(const Element& element, std::uint64_t index, Found& found) const;
  void add_complex(const Element& element, std::uint64_t index, Found& found) const;
  void add_composition(const Element& element, std::uint64_t index, Found& found) const;
  bool add_quickly(const Element& element, std::uint64_t index, Found& found) const;
  double value(DType dtype, std::uint64_t bits) const;

  const Subject& subject_;
  DType dtype_;
  DType result_;
  fusion::TypedNode node_;
  ExactComposition composition_ = nullptr;
  std::vector<double> values_;  ///< of every number of a 16-bit dtype
};

}  // namespace kiln::numerics
