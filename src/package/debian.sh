#!/bin/bash
# Builds the packages libkiln0, libkiln-dev, kiln and python3-kiln for this Debian or Ubuntu: debian.sh
# [DIRECTORY [CMAKE_ARGUMENT...]], by default build/debian in the sources, where the packages are then.
# What is missing is installed, as ./try does. python3-kiln is for the system's Python, and left out where
# nanobind cannot be had, which is said.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/packages.sh
directory=${1:-build/debian}
shift || true
install_packages
options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBEXECDIR=libexec
  -DCMAKE_SKIP_INSTALL_RPATH=ON -DKILN_BUILD_TESTS=OFF)
python=
if apt_knows python3-nanobind; then  # Debian 13 and newer
  mapfile -t missing < <(missing_libraries python3-dev python3-nanobind)
  ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
  python=/usr/bin/python3
elif PATH=/usr/bin:$PATH install_python "$PWD/build/python-debian" nanobind; then
  python=$PWD/build/python-debian/bin/python3
fi
[[ -z $python ]] || options+=(-DKILN_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$python"
  -DKILN_PYTHON_DIRECTORY=lib/python3/dist-packages)
cmake -S . -B "$directory" -G Ninja "${options[@]}" "$@"
cmake --build "$directory"
(cd "$directory" && cpack -G DEB)
ls "$directory"/*.deb
