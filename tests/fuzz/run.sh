#!/bin/bash
# The fuzzers as tests of a build that was made by any compiler: `build` makes them in a tree of their
# own with clang, AddressSanitizer and UndefinedBehaviorSanitizer; a fuzzer's name runs it on every
# input of its corpus and its regressions, and then for some seconds on new ones.
# CMakeLists.txt beside this file sets the variables.
#
#   run.sh pack BUILD-FUZZ/tests/fuzz/NAME_fuzz [DIRECTORY...]
#
# makes corpus/NAME.tar.zst again: as few inputs as do all that those in it and in the directories do.
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

# unpack NAME DIRECTORY: the inputs of the archive in a new directory.
unpack() {
  rm -rf "$2"
  mkdir -p "$2"
  (cd "$2" && "${CMAKE:-cmake}" -E tar xf "$here/corpus/$1.tar.zst")
}

here=$(cd "$(dirname "$0")" && pwd)
if [[ $1 == pack ]]; then
  fuzzer=$(realpath "$2")
  name=$(basename "$2" _fuzz)
  shift 2
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir "$scratch/old"
  [[ ! -f $here/corpus/$name.tar.zst ]] || unpack "$name" "$scratch/old"
  mkdir "$scratch/new"
  "$fuzzer" -merge=1 -timeout=20 "$scratch/new" "$scratch/old" "$@"
  # The same inputs give the same bytes.
  (cd "$scratch/new" && find . -type f -printf '%P\n' | sort >"$scratch/names" &&
    cmake -E tar cf "$here/corpus/$name.tar.zst" --zstd --format=gnutar \
      --mtime='1970-01-01 00:00:00 UTC' --files-from="$scratch/names")
  echo "$(wc -l <"$scratch/names") inputs in $here/corpus/$name.tar.zst"
  exit
fi

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
  replay)  # NAME PROGRAM: the fuzzer's function alone, over what is known already
    unpack "$2" "$SCRATCH/$2-replayed"
    inputs=("$SCRATCH/$2-replayed")
    [[ ! -d $here/regressions/$2 ]] || inputs+=("$here/regressions/$2")
    "$3" "${inputs[@]}"
    ;;
  *)
    fuzzer=$SCRATCH/tree/tests/fuzz/$1_fuzz
    [[ -x $fuzzer ]] || skip "the fuzzers were not built: see fuzz.build.search"
    found=$SCRATCH/$1
    rm -rf "$found"
    mkdir "$found"
    corpus=$SCRATCH/$1-corpus
    unpack "$1" "$corpus"
    inputs=("$found" "$corpus")
    [[ ! -d $here/regressions/$1 ]] || inputs+=("$here/regressions/$1")
    "$fuzzer" -max_total_time="$SECONDS_EACH" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$found-" "${inputs[@]}"
    ;;
esac
