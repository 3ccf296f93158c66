// `kiln bench --sweep`: functions that are drawn from a grammar (tool/sweep/), each as a program on
// data of its own, as a fraction of a copy of as many bytes, beside what `explain` expects.
#pragma once

#include "tool/commands.hpp"

namespace kiln::tool {

/// Draws, measures and reports. Returns the exit code: failure where a result is wrong or a
/// function was refused.
int run_bench_sweep(const BenchOptions& options);

}  // namespace kiln::tool
