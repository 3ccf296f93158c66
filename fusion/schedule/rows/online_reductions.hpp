// Two reductions of a row that need only one meeting of its threads, since what the second one
// computes can be moved from one centre to another: the sum of exponentials below the row's largest
// element (softmax) and the sum of squares around its mean (variance, after Chan, Golub and
// LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). Each
// thread takes its own largest element for the row's, or the mean of some of its elements; the
// moving is in preamble/reduce.h. A mean is rounded wherever two meet, which adds
// u |mean| / deviation to the relative error of a variance, u being half a unit in the last place
// of 1, and around the mean of some of n elements the squares of all lose up to n u more.
#pragma once

#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

struct JoinedReductions {
  NodeId centre = 0;       ///< the maximum or the mean
  NodeId around = 0;       ///< the sum, or the mean of squares
  NodeId exponential = 0;  ///< that is summed; of squares, 0
  bool squares = false;
};

/// `pass` says after how many passes over the row a node is known, `last_pass` is the one that
/// stores elements; `uniform` are the nodes with one element for each row. Nothing but `around` may
/// need `centre` before both are known.
std::vector<JoinedReductions> joined_reductions(const TypedGraph& graph,
                                                const std::vector<int>& pass,
                                                const std::vector<bool>& uniform, int last_pass);

}  // namespace kiln::fusion
