#!/bin/bash
# names.sh COMPILER SOURCE BINARY: do all files of fusion/, and all of src/'s library, compile as one? A
# quick build (KILN_QUICK_BUILD) compiles several at once, which ones depends on how many there are: a
# name in an anonymous namespace must be the only one in its module.
set -euo pipefail

cd "$2"
for module in fusion src; do
  find "$module" -name '*.cpp' -not -path 'src/tool/*' -not -path 'src/python/*' | sort |
    sed 's/.*/#include "&"/' |
    "$1" -x c++ -std=c++20 -fsyntax-only -w -DFMT_SHARED -I. -Isrc -I"$3/include" - ||
    { echo "$module: its files do not compile as one"; exit 1; }
done
