// Where the temporaries of a program lie in its workspace, and which of its kernels needs the most
// of it at a time. The places themselves are found in fusion/partition/workspace.hpp.
#pragma once

#include <vector>

#include "fusion/partition/workspace.hpp"
#include "program/plan.hpp"

namespace kiln {

/// What lies in a workspace: one place for all temporaries that are in it one after the other.
struct TemporaryPlaces {
  std::vector<fusion::Lifetime> lifetimes;  ///< of each place
  std::vector<std::size_t> of;              ///< of each temporary, its place
};
/// Of a fused plan, what a kernel stores may lie where it reads something for the last time,
/// element for element. Unfused, the results of the parts of a split reduction, which are few, live
/// as long as the program runs, since a fused plan has those of several reductions at once.
TemporaryPlaces find_places(const ProgramPlan& plan, bool fused);

/// Fills in the offsets of temporaries and the size of the workspace.
void place_temporaries(ProgramPlan& plan, bool fused);

/// The step at which the most bytes of temporaries are alive; there is at least one temporary.
std::size_t busiest_step(const ProgramPlan& plan);

}  // namespace kiln
