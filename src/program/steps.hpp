// The steps of a program's plan: the kernels of a partition as functions, what each reads and
// writes, and its description. Where temporaries lie is decided in memory.hpp.
#pragma once

#include <memory>
#include <vector>

#include "fusion/partition/partition.hpp"
#include "program/plan.hpp"

namespace kiln {

/// `arguments` says where those lie; those of the graph that follow are numbers of elements
/// (`lengths`). Offsets of temporaries, the workspace and what the program's
/// outputs are called with are left open.
ProgramPlan program_steps(const Definition& definition, const fusion::PlacedGraph& graph,
                          const std::vector<fusion::ArrayLayout>& arguments,
                          const std::vector<std::int64_t>& lengths,
                          const fusion::Partition& partition);

/// The kernel of a step with those operands. `logged`: in manifests it is a function.
std::shared_ptr<StepKernel> step_kernel(TypedFunction function, const ProgramStep& step,
                                        bool logged);

}  // namespace kiln
