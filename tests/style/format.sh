#!/bin/bash
# format.sh RELEASE DIRECTORY: is what git tracks there as that release of clang-format writes it?
set -euo pipefail

skip() {  # in the form that Google Test has
  printf 'tests/style/format.sh: Skipped\n%s\n' "$1"
  exit 77
}

release=$1
cd "$2"
formatter=
for program in "clang-format-$release" clang-format; do
  if "$program" --version 2>/dev/null | grep -q "version $release\."; then
    formatter=$program
    break
  fi
done
[[ $formatter ]] || skip "no clang-format $release (Debian 12, Ubuntu 22.04 and 24.04: clang-format-$release)"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "not a clone: git says which files there are"

git ls-files -z '*.cpp' '*.hpp' '*.inl' 'preamble/*.h' |
  xargs -0 -n 64 -P "$(nproc)" "$formatter" --dry-run -Werror
