// Programs whose plans are tested, and what is asked of any plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "call/call_types.hpp"
#include "fusion/graph/graph.hpp"
#include "fusion/partition/partition.hpp"
#include "program/plan.hpp"
#include "tests/support/arrays.hpp"

namespace kiln::testing {

/// A program, and arrays to run it on.
struct PlanCase {
  fusion::Graph graph;
  std::vector<HostArray> inputs;
  Rounding rounding = Rounding::once;
  std::uint64_t seed = 0;
};

/// A random one of so many operations, over packed numbers too if `packed`.
PlanCase random_case(std::uint64_t seed, std::size_t nodes, bool packed = false);
CallTypes call_of(const PlanCase& one);
Definition definition_of(const fusion::Graph& graph, Rounding rounding = Rounding::once);

/// Emits the kernels for every kind of device.
void emit_kernels(const ProgramPlan& plan, const CallTypes& call);

/// What is wrong with the bytes that a plan says it moves, or nothing.
std::string wrong_bytes(const Definition& definition, const CallTypes& call,
                        const fusion::CostModel& model = {});

}  // namespace kiln::testing
