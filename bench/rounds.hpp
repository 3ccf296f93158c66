// How long a suite measures. Its test, which sets KILN_BENCH_SHORT, only shows that it works.
#pragma once

#include <cstdlib>

namespace kiln::bench {

/// A number of rounds, samples or things to measure with: `few` in a short run.
template <class T>
T rounds(T full, T few) {
  return std::getenv("KILN_BENCH_SHORT") == nullptr ? full : few;
}

}  // namespace kiln::bench
