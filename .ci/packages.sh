# shellcheck shell=bash
# What ./try and ./check need from the system, and how it gets there. Sourced by both; prints what it is
# about to install, asks for nothing as root, uses sudo otherwise, and touches no network when everything
# is there. HIP is optional: without it kiln builds and runs on the CPU and on NVIDIA GPUs.

# Where AMD's own packages put HIP; the distribution's are never mixed with them.
rocm_directory() {
  local directory
  for directory in "${ROCM_PATH:-}" /opt/rocm /opt/rocm-*; do
    [[ -n $directory && -e $directory/lib ]] && { echo "$directory"; return; }
  done
  return 1
}

# Prints the package of every program in "PROGRAM:PACKAGE..." that is not on PATH.
missing_programs() {
  local pair
  for pair in "$@"; do command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}"; done
}

# Of "A|B" one is enough.
missing_libraries() {
  local package alternative
  for package in "$@"; do
    for alternative in ${package//|/ }; do
      [[ $(dpkg-query -W -f '${db:Status-Status}' "$alternative" 2>/dev/null) != installed ]] || continue 2
    done
    echo "$package"
  done
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif command -v sudo >/dev/null; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    echo "Root is needed for: $*" >&2
    return 1
  fi
}

apt_install() {
  local log
  log=$(mktemp)
  if ! as_root apt-get -qq -y --no-install-recommends install "$@" </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

apt_knows() {
  [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ {print $2}') == [0-9]* ]]
}

# Of "A|B" the first that this release has.
first_known() {
  local alternative
  for alternative in ${1//|/ }; do
    if apt_knows "$alternative"; then echo "$alternative"; return; fi
  done
  return 1
}

what_is_lost_without() {
  case $1 in
    libamdhip64-dev) echo "AMD kernels are not compiled (with AMD's own packages in /opt/rocm they are)" ;;
    libhiredis-dev) echo "there is no KILN_REMOTE_CACHE" ;;
    valkey-tools*) echo "the remote cache is not tested" ;;
    libdlpack-dev) echo "kiln/dlpack.hpp is not tested" ;;
    clang-format-*) echo "the sources' format is not tested" ;;
    doxygen) echo "the reference of the public API is not made" ;;
    clang-tidy) echo "there is no --tidy" ;;
  esac
}

# install_packages [LIBRARY...] [?LIBRARY[|OTHER]...]: what the build needs, and those; with ? what a release
# may lack.
install_packages() {
  local programs=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config)
  local libraries=(libfmt-dev nlohmann-json3-dev libcli11-dev libtbb-dev libsodium-dev libxxhash-dev
    libzstd-dev)
  local package known rocm missing optional=()

  if rocm=$(rocm_directory); then echo "HIP: $rocm"; else optional=(libamdhip64-dev); fi
  optional+=(libhiredis-dev)
  for package in "$@"; do
    if [[ $package == \?* ]]; then optional+=("${package#?}"); else libraries+=("$package"); fi
  done

  if ! command -v apt-get >/dev/null; then
    missing=$(missing_programs "${programs[@]}" | xargs)
    echo "No apt-get here. kiln needs a C++20 compiler, cmake 3.22, ninja, pkg-config and the libraries" \
      "that Debian calls ${libraries[*]}; of use is ${optional[*]}."
    [[ -z $missing ]] || { echo "Not found: $missing" >&2; return 1; }
    return 0
  fi

  missing=$({ missing_programs "${programs[@]}"; missing_libraries "${libraries[@]}"; } | xargs)
  mapfile -t optional < <(missing_libraries "${optional[@]}")
  if [[ -n $missing ]] || { ((${#optional[@]})) && ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }; then
    as_root apt-get -qq update >/dev/null 2>&1 || echo "apt-get update failed; going on with the lists that are here."
  fi
  if [[ -n $missing ]]; then
    echo "Installing with apt-get: $missing"
    # shellcheck disable=SC2086
    apt_install $missing || { echo "Could not install: $missing" >&2; return 1; }
  fi
  for package in "${optional[@]}"; do
    if ! known=$(first_known "$package"); then
      echo "${package//|/ or } is not in this release: $(what_is_lost_without "$package")."
    elif ! { echo "Installing with apt-get: $known" && apt_install "$known"; }; then
      echo "$known could not be installed: $(what_is_lost_without "$package")."
    fi
  done
}

# install_python DIRECTORY PACKAGE...: a virtual environment with these, to build or test the Python package.
# Fails, and says what is lost, where it cannot be made; a later run tries again.
install_python() {
  local directory=$1 log
  local packages=("${@:2}")
  local test='import importlib.util as u, os, sys, sysconfig as c
sys.exit(not (all(u.find_spec(name) for name in sys.argv[1:])
              and os.path.exists(os.path.join(c.get_path("include"), "Python.h"))))'
  [[ ! -x $directory/bin/python3 ]] || ! "$directory/bin/python3" -c "$test" "${packages[@]}" || return 0
  log=$(mktemp)
  echo "Installing with pip, in $directory: ${packages[*]}"
  if ! { python3 -c 'import venv, ensurepip' || apt_install python3-venv; } >"$log" 2>&1 ||
    ! { python3 -c "$test" || apt_install python3-dev; } >>"$log" 2>&1 ||
    ! python3 -m venv "$directory" >>"$log" 2>&1 ||
    ! "$directory/bin/pip" --disable-pip-version-check -q --retries 1 --timeout 20 install "${packages[@]}" >>"$log" 2>&1 ||
    ! "$directory/bin/python3" -c "$test" "${packages[@]}" >>"$log" 2>&1; then
    tail -n 2 "$log" >&2
    echo "They could not be installed: the Python package is not built and not tested."
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# build_tree DIRECTORY LOG [CMAKE_ARGUMENT...] [-- TARGET...]: configures and builds; shows the log only on
# failure.
build_tree() {
  local tree=$1 log=$2 configure=() launcher=()
  shift 2
  while (($#)) && [[ $1 != -- ]]; do
    configure+=("$1")
    shift
  done
  (($#)) && shift || set -- all
  mkdir -p "$tree" "$(dirname "$log")"
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  if ! { cmake -S . -B "$tree" -G Ninja "${launcher[@]}" "${configure[@]}" &&
    cmake --build "$tree" --target "$@"; } \
    >"$log" 2>&1; then
    grep -n -m 20 -E 'FAILED|error|Error' "$log" >&2
    tail -n 20 "$log" >&2
    echo "The build failed; the whole log is $log" >&2
    return 1
  fi
}
