// `kiln bench --corpus FILE`: the functions of a corpus, each as a program, at the sizes that its
// last column gives, as a fraction of a copy that moves what each has to move.
#pragma once

#include "tool/commands.hpp"

namespace kiln::tool {

/// A line of FILE is: name | text | arguments of a test | arguments of the benchmark. An argument
/// is x=DTYPE[SHAPE]; in the benchmark's an extent may be N, which is as large as --size allows.
/// Throws UsageError for a line that does not fit. Returns the exit code.
int run_bench_corpus(const BenchOptions& options);

}  // namespace kiln::tool
