#!/bin/bash
# The fuzzers as tests of a build that was made by any compiler: `build` makes them in a tree of their
# own with clang, AddressSanitizer and UndefinedBehaviorSanitizer; a fuzzer's name runs it for some
# seconds on top of its corpus. CMakeLists.txt beside this file sets the variables.
set -euo pipefail

skip() {  # in the form that Google Test has
  printf 'tests/fuzz/run.sh: Skipped\n%s\n' "$1"
  exit 77
}

clang_with_fuzzer() {
  local compiler
  for compiler in clang++ $(compgen -c clang++- | grep -E '^clang\+\+-[0-9]+$' | sort -rV); do
    if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$compiler" -fsanitize=fuzzer,address,undefined -x c++ - -o "$SCRATCH/probe" 2>/dev/null; then
      echo "$compiler"
      return
    fi
  done
  return 1
}

mkdir -p "$SCRATCH"
case $1 in
  build)
    compiler=$(clang_with_fuzzer) || skip "no clang with libFuzzer (Debian: clang and libclang-rt-dev)"
    "$CMAKE" -S "$SOURCE" -B "$SCRATCH/tree" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
      "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" \
      -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_COMPILER_LAUNCHER="${LAUNCHER:-}" \
      -DKILN_BUILD_FUZZERS=ON -DKILN_SANITIZE=fuzzer-no-link,address,undefined -DKILN_INSTALL=OFF
    "$CMAKE" --build "$SCRATCH/tree" --target kiln_fuzzers
    ;;
  *)
    fuzzer=$SCRATCH/tree/tests/fuzz/$1_fuzz
    [[ -x $fuzzer ]] || skip "the fuzzers were not built: see fuzz.build"
    found=$SCRATCH/$1
    rm -rf "$found"
    mkdir "$found"
    "$fuzzer" -max_total_time="$SECONDS_EACH" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$found-" "$found" "$SOURCE/tests/fuzz/corpus/$1"
    ;;
esac
