// How a kernel of products goes through what a thread has of its rows: what follows from a graph
// and its ProductSchedule together, whatever text says it. emit/products writes it and `explain`
// prints it; where values are computed is said by ProductValues.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

struct ProductLoops {
  int rows = 1;         ///< of a thread, whose elements are gone through together
  bool staged = false;  ///< CPU: integer products, of which vectors that rows share are arranged a
                        ///< stage at a time for all of those rows (preamble/product_integers.h)
  int rows_beside = 1;  ///< then: of those rows, as many as have their sums in registers
  bool in_vectors = false;  ///< values are vectors of floats (preamble/product_vectors.h): on the
                            ///< CPU SIMD vectors, pairs on AMD GPUs
  int lanes_per_sum = 1;    ///< where they are not
  bool several_groups = false;  ///< CPU: values of groups are computed for several at a time
  bool share_slots = false;     ///< GPUs: sums are combined one after the other in the same shared
                                ///< memory, which has no room for all of them
  int min_blocks = 0;           ///< that a multiprocessor must have room for; 0: no such demand
  std::vector<bool> added;      ///< of each node: a product that its only user adds, unrounded
  std::vector<bool> by_part;    ///< of each operand: its vectors are loaded part by part
};

/// `schedule` is of plan_products(), of `graph`.
ProductLoops product_loops(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);

/// For people.
std::vector<std::string> explain_loops(std::span<const std::string> names, const Schedule& schedule,
                                       const ProductLoops& loops);

}  // namespace kiln::fusion
