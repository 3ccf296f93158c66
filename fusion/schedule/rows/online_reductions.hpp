// Online reductions: two reductions of a row with only one barrier for its threads, since the
// second can be moved from one centre to another. These are the sum of exponentials below the row's
// maximum (softmax) and the sum of squares around its mean (variance, after Chan, Golub and
// LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). Each
// thread uses its own maximum, or the mean of some of its elements; preamble/online.h combines
// them. Each combination rounds the mean, which adds u |mean| / deviation to the relative error of
// a variance, u being half a unit in the last place of 1; around the mean of some of n elements the
// squares of all have up to n u more.
#pragma once

#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

struct OnlineReductions {
  NodeId centre = 0;       ///< the maximum or the mean
  NodeId around = 0;       ///< the sum, or the mean of squares
  NodeId exponential = 0;  ///< that is summed; of squares, 0
  bool squares = false;
};

/// `pass` is the number of passes over the row after which a node is known, `last_pass` the one
/// that stores elements; `row_invariant` are the nodes with one element for each row. No node but
/// `around` may need `centre` before both are known.
std::vector<OnlineReductions> online_reductions(const TypedGraph& graph,
                                                const std::vector<int>& pass,
                                                const std::vector<bool>& row_invariant,
                                                int last_pass);

}  // namespace kiln::fusion
