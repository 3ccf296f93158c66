#!/bin/bash
# One test of the installation, by name; see CMakeLists.txt beside this file, which sets the variables.
set -euo pipefail

prefix=$SCRATCH/prefix
sanitize=${FLAGS:+-fsanitize=$FLAGS}
# Of the cache that all tests share only what is known of compilers: to find that out takes seconds.
toolchains=${KILN_CACHE_DIR:+$KILN_CACHE_DIR/toolchains.json}
export KILN_CACHE_DIR=$SCRATCH/cache
install -d -m 700 "$KILN_CACHE_DIR"
if [[ -f $toolchains ]]; then  # whole at once: other tests use this directory now
  own=$(mktemp "$SCRATCH/toolchains.XXXXXX")
  cat "$toolchains" >"$own"
  mv "$own" "$KILN_CACHE_DIR/toolchains.json"
fi

expect_output() {  # PROGRAM...: runs it and compares what it prints
  local got
  got=$("$@" | xargs)
  [[ $got == "-0.2689 0.0000 2.1932 7.0464" ]] || { echo "$*: printed '$got'" >&2; exit 1; }
}

user_project() {  # NAME CMAKE_ARGUMENT...: configures, builds and runs project/ with these
  local tree=$SCRATCH/$1
  shift
  rm -rf "$tree"
  "$CMAKE" -S "$SOURCE/tests/install/project" -B "$tree" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="${LAUNCHER:-}" -DCMAKE_CXX_FLAGS="$sanitize" "$@"
  "$CMAKE" --build "$tree" --target program
  expect_output "$tree/program"
}

with_pkg_config() {  # PREFIX PROGRAM
  local flags
  flags=$(PKG_CONFIG_PATH=$1/$LIBDIR/pkgconfig pkg-config --cflags --libs kiln)
  # shellcheck disable=SC2086
  "$CXX" -std=c++20 $sanitize "$SOURCE/tests/install/program.cpp" $flags -Wl,-rpath,"$1/$LIBDIR" -o "$2"
  expect_output "$2"
}

first_block() {  # LANGUAGE FILE: its first block of code in that language
  awk -v fence="\`\`\`$1" '$0 == fence {inside = 1; next} /^```/ {if (inside) exit} inside' "$2"
}

case $1 in
  install)
    rm -rf "$prefix"
    "$CMAKE" --install "$BUILD" --prefix "$prefix"
    test -x "$prefix/libexec/kiln/kiln-compile-worker"
    # A program would run what somebody puts there. Where sources lay is debug information.
    for file in "$prefix/$LIBDIR"/libkiln.so.? "$prefix/bin/kiln" "$prefix/libexec/kiln/kiln-compile-worker"; do
      objcopy --strip-debug "$file" "$SCRATCH/stripped"
      ! grep -aoF "$BUILD" "$SCRATCH/stripped" || { echo "$file names the build directory" >&2; exit 1; }
    done
    for file in man/man1/kiln.1 bash-completion/completions/kiln zsh/site-functions/_kiln \
      fish/vendor_completions.d/kiln.fish; do
      test -s "$prefix/share/$file" || { echo "$file was not installed" >&2; exit 1; }
    done
    ;;
  find_package) user_project find_package -DCMAKE_PREFIX_PATH="$prefix" ;;
  pkg_config) with_pkg_config "$prefix" "$SCRATCH/with_pkg_config" ;;
  exports)  # what the public headers declare, with a version, and nothing else
    nm -D --defined-only --with-symbol-versions "$prefix/$LIBDIR/libkiln.so" | cut -d ' ' -f 3- >"$SCRATCH/exports"
    if others=$(grep -v -E '@@KILN_(CXX_)?[0-9.]+$|^KILN_' "$SCRATCH/exports"); then
      echo "exported without a version: $others" >&2
      exit 1
    fi
    sed 's/@@.*//' "$SCRATCH/exports" | c++filt >"$SCRATCH/exported"
    if others=$(grep -E '^([a-z ]* for )?(kiln::(base|files|fusion|jit|numerics|tool)|std)::|::(Impl|State)::' \
      "$SCRATCH/exported"); then
      echo "exported, but not in a public header: $others" >&2
      exit 1
    fi
    grep -q '^kiln::Function::call(' "$SCRATCH/exported"
    # The C API: what the header declares, what the list names and what the library has are the same.
    tr '\n' ' ' <"$prefix/include/kiln/kiln.h" | grep -oP 'KILN_API [^;]*?\b\Kkiln_\w+(?=\()' | sort >"$SCRATCH/declared"
    grep -oP '^    \Kkiln_\w+(?=;)' "$SOURCE/src/package/exports.map.in" | sort >"$SCRATCH/listed"
    grep -oP '^kiln_\w+(?=@@KILN_[0-9.]+$)' "$SCRATCH/exports" | sort >"$SCRATCH/found"
    [[ -s $SCRATCH/declared ]]
    diff "$SCRATCH/declared" "$SCRATCH/listed"
    diff "$SCRATCH/declared" "$SCRATCH/found"
    ;;
  headers)  # each alone, in the order of nobody's includes, against nothing but the installation
    for header in "$prefix"/include/kiln/*.h*; do
      echo "$header"
      if grep -q '<dlpack/' "$header" && ! echo '#include <dlpack/dlpack.h>' | "$CXX" -E -x c++ - >/dev/null 2>&1; then
        echo "left out: it needs dlpack/dlpack.h (Debian: libdlpack-dev), which is not here"
        continue
      fi
      echo "#include <kiln/${header##*/}>" |
        "$CXX" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" -x c++ -
    done
    ;;
  tool)
    "$prefix/bin/kiln" doctor --json | grep -q '"cache"'
    "$prefix/bin/kiln" emit 'silu(gate) * up' --type 'gate=f32[8]' --type 'up=f32[8]' --target cpu |
      grep -q 'extern "C"'
    ;;
  readme)  # the first blocks of code are the bodies of the programs here
    for pair in cpp:README.md c:src/c/README.md python:src/python/README.md; do
      language=${pair%%:*}
      block=$(first_block "$language" "$SOURCE/${pair#*:}")
      program=$(tail -n +2 "$SOURCE/tests/install/program.${language/python/py}")
      [[ -n $block ]] && diff <(echo "$block") <(echo "$program")
    done
    ;;
  c_program)
    cc=$(command -v gcc || command -v clang) || { printf 'install.c_program: Skipped\nno C compiler\n'; exit 77; }
    flags=$(PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig pkg-config --cflags --libs kiln)
    # shellcheck disable=SC2086
    "$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror $sanitize "$SOURCE/tests/install/program.c" $flags \
      -Wl,-rpath,"$prefix/$LIBDIR" -o "$SCRATCH/c_program"
    expect_output "$SCRATCH/c_program"
    ;;
  release)  # the newest version of CHANGELOG.md is this one, and the sources of a release are what git has
    version=$(sed -n 's/^project(kiln VERSION \([0-9.]*\).*/\1/p' "$SOURCE/CMakeLists.txt")
    grep -m 1 '^## ' "$SOURCE/src/package/CHANGELOG.md" | grep -E "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)\$"
    if ! git -C "$SOURCE" rev-parse HEAD >/dev/null 2>&1; then
      printf 'install.release: Skipped\nnot a clone: there is nothing to make sources of\n'
      exit 77
    fi
    if ! command -v xz >/dev/null; then
      printf 'install.release: Skipped\nthere is no xz, of xz-utils\n'
      exit 77
    fi
    archive=$("$SOURCE/src/package/source.sh" "$SCRATCH/release")
    diff <(tar -tf "$archive" | grep -v '/$' | cut -d / -f 2- | sort) \
      <(git -C "$SOURCE" ls-tree -r --name-only HEAD | sort)
    ;;
  static)
    tree=$SCRATCH/static-build
    "$CMAKE" -S "$SOURCE" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$CXX" \
      -DCMAKE_CXX_COMPILER_LAUNCHER="${LAUNCHER:-}" -DBUILD_SHARED_LIBS=OFF -DKILN_BUILD_TESTS=OFF \
      -DCMAKE_INSTALL_PREFIX="$SCRATCH/static-prefix"
    "$CMAKE" --build "$tree"
    "$CMAKE" --install "$tree"
    sanitize=
    user_project static -DCMAKE_PREFIX_PATH="$SCRATCH/static-prefix"
    with_pkg_config "$SCRATCH/static-prefix" "$SCRATCH/static_with_pkg_config"
    ;;
  subproject)
    sanitize=
    user_project subproject -DKILN_SOURCE="$SOURCE" -DCMAKE_BUILD_TYPE=Release
    ;;
  packages)  # Debian's: built, unpacked and used, without installing them
    if ! command -v dpkg-deb >/dev/null; then
      printf 'install.packages: Skipped\nnot a Debian\n'
      exit 77
    fi
    rm -rf "$SCRATCH/debian" "$SCRATCH/root"
    "$SOURCE/src/package/debian.sh" "$SCRATCH/debian" -DCMAKE_CXX_COMPILER="$CXX" \
      -DCMAKE_CXX_COMPILER_LAUNCHER="${LAUNCHER:-}"
    for package in libkiln0 libkiln-dev kiln; do
      dpkg-deb -x "$SCRATCH/debian/${package}_"*.deb "$SCRATCH/root"
    done
    for package in "$SCRATCH"/debian/python3-kiln_*.deb; do  # not where there is no nanobind
      [[ ! -f $package ]] || dpkg-deb -x "$package" "$SCRATCH/root"
    done
    if command -v lintian >/dev/null; then lintian --fail-on error "$SCRATCH/debian/"*.deb; fi
    root=$SCRATCH/root/usr
    dpkg-deb -f "$SCRATCH/debian/libkiln0_"*.deb Depends | grep -q 'libfmt'
    dpkg-deb -I "$SCRATCH/debian/libkiln0_"*.deb | grep -q shlibs
    test -s "$root/share/man/man1/kiln.1.gz"
    ! grep -aqF "$SCRATCH" "$root/bin/kiln" || { echo "kiln names the build directory" >&2; exit 1; }
    "$root/bin/kiln" doctor --json | grep -q '"cache"'
    sanitize=
    library=$(cd "$root" && echo lib/*/libkiln.so.0)
    LIBDIR=${library%/*} with_pkg_config "$root" "$SCRATCH/with_packages"
    if [[ -d $root/lib/python3 ]] && /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
      PYTHONPATH=$root/lib/python3/dist-packages LD_LIBRARY_PATH=$root/${library%/*} PYTHONDONTWRITEBYTECODE=1 \
        expect_output /usr/bin/python3 "$SOURCE/tests/install/program.py"
    fi
    ;;
  *) echo "no such test: $1" >&2; exit 2 ;;
esac
