#!/bin/bash
# Builds the packages libkiln0, libkiln-dev and kiln for this Debian or Ubuntu: debian.sh [DIRECTORY
# [CMAKE_ARGUMENT...]], by default build/debian in the sources, where the packages are then.
set -euo pipefail
cd "$(dirname "$0")/../.."
directory=${1:-build/debian}
shift || true
cmake -S . -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  -DCMAKE_INSTALL_LIBEXECDIR=libexec -DCMAKE_SKIP_INSTALL_RPATH=ON -DKILN_BUILD_TESTS=OFF "$@"
cmake --build "$directory"
(cd "$directory" && cpack -G DEB)
ls "$directory"/*.deb
