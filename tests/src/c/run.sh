#!/bin/bash
# Runs one test of the C API: PROGRAM, or a language and its source. CMakeLists.txt beside this file sets the
# variables. Ends with 77 where the language is not here.
set -euo pipefail

skip() {  # in the form in which ./check finds reasons
  printf 'C API: Skipped\n%s\n' "$*"
  exit 77
}

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cache=$directory/cache
mkdir -m 700 "$cache"
include=(-I"${INCLUDES%%:*}" -I"${INCLUDES#*:}")

case $1 in
  python3)
    python3 -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || skip "no python3 (3.8 or newer) with ctypes"
    [[ -z $SANITIZE ]] || skip "python3 cannot load a library with sanitizers"
    python3 "$2" "$LIBRARY" "$cache"
    ;;
  rust)
    rustc --version >/dev/null 2>&1 || skip "no rustc (Debian: rustc)"
    [[ -z $SANITIZE ]] || skip "rustc does not link the sanitizers of the C++ compiler"
    rustc --edition 2021 -C debuginfo=0 -L "${LIBRARY%/*}" -C link-arg="-Wl,-rpath,${LIBRARY%/*}" \
      -o "$directory/program" "$2"
    "$directory/program" "$cache"
    ;;
  go)
    go version >/dev/null 2>&1 || skip "no go (Debian: golang-go)"
    [[ -z $SANITIZE ]] || skip "go does not link the sanitizers of the C++ compiler"
    cp "$2" "$directory/program.go"
    (cd "$directory" && GOCACHE=$SCRATCH/go GO111MODULE=off CGO_ENABLED=1 CGO_CFLAGS="${include[*]}" \
      CGO_LDFLAGS="-L${LIBRARY%/*} -Wl,-rpath,${LIBRARY%/*}" go build -o program program.go)
    "$directory/program" "$cache"
    ;;
  *) "$1" "$cache" ;;
esac
