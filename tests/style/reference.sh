#!/bin/bash
# reference.sh SOURCE DIRECTORY: makes the reference of the public API there; a warning is a failure.
set -euo pipefail
if ! command -v doxygen >/dev/null; then  # in the form that Google Test has
  printf 'tests/style/reference.sh: Skipped\nthere is no doxygen\n'
  exit 77
fi
cd "$1"
rm -rf "$2"
mkdir -p "$2"
warnings=$({ cat src/kiln/Doxyfile; printf 'OUTPUT_DIRECTORY = "%s"\n' "$2"; } | doxygen - 2>&1)
[[ -z $warnings ]] || { echo "$warnings" >&2; exit 1; }
for page in classkiln_1_1Function.html value_8hpp.html kiln_8h.html; do
  test -s "$2/html/$page" || { echo "$page was not made" >&2; exit 1; }
done
grep -q hardswish "$2/html/value_8hpp.html"  # by a macro
