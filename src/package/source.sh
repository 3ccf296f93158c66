#!/bin/bash
# Makes the sources of a release, kiln-VERSION.tar.xz, of the commit that is checked out: source.sh
# [DIRECTORY], by default build; prints where they are. The same commit gives the same bytes. What is in
# them builds without git.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(kiln VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
directory=${1:-build}
mkdir -p "$directory"
archive=$directory/kiln-$version.tar.xz
git archive --format=tar --prefix="kiln-$version/" HEAD | xz -6 --threads=1 >"$archive.part"
mv "$archive.part" "$archive"
echo "$archive"
