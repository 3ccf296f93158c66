#!/bin/bash
# with_threads.sh PROGRAM FILTER DRAWS THREADS...: the tests that match the filter by each number of threads,
# all of the same cases, so that a kernel is compiled once: kernels do not know how many threads share them.
set -euo pipefail
program=$1 filter=$2
export KILN_TEST_DRAWS=$3 KILN_TEST_SEED=${KILN_TEST_SEED:-$RANDOM}
shift 3

KILN_TEST_CACHE_DIR=$(mktemp -d)
export KILN_TEST_CACHE_DIR
trap 'rm -rf "$KILN_TEST_CACHE_DIR"' EXIT
failed=
for threads in "$@"; do
  KILN_CPU_THREADS=$threads "$program" "--gtest_filter=$filter" || failed+=" $threads"
done
[[ -z $failed ]] || { echo "KILN_TEST_SEED=$KILN_TEST_SEED: failed with threads:$failed"; exit 1; }
