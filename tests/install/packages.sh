#!/bin/bash
# From the release's sources to packages that are installed, used and removed: makes the sources, builds
# the packages of them where git is not, takes off what the build needed, installs the packages, lets a user
# who is not root build and run programs in C, C++ and Python, removes them and looks for what is left.
#
#   packages.sh [CMAKE_ARGUMENT...]
#
# It changes the system and runs as root: for a container, or a machine to be thrown away.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/packages.sh
names=(libkiln0 libkiln-dev kiln python3-kiln)
user=kiln-example
[[ $(id -u) == 0 ]] || { echo "packages.sh: it installs packages and makes a user; run it as root, in a container" >&2; exit 2; }
if dpkg-query -W "${names[@]}" 2>/dev/null || id "$user" 2>/dev/null; then
  echo "packages.sh: that is here already; run it in a fresh container" >&2
  exit 2
fi

scratch=$(mktemp -d /var/tmp/kiln-packages.XXXXXX)
chmod 755 "$scratch"
trap 'userdel -rf "$user" >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT

# A root directory as mktemp makes it is one in which there are no users.
[[ $(stat -c %a /) == *[157] ]] || chmod 755 /

step() { printf '\n== %s\n' "$1"; }
as_user() { (cd "/home/$user" && runuser -u "$user" -- env -i HOME="/home/$user" PATH=/usr/bin:/bin LANG=C.UTF-8 "$@"); }
logged() { "$@" >"$scratch/log" 2>&1 || { tail -n 40 "$scratch/log" >&2; exit 1; }; }
none() {  # WHAT: nothing may come
  local lines
  lines=$(cat)
  [[ -z $lines ]] || { printf '%s:\n%s\n' "$1" "$lines" >&2; exit 1; }
}
installed() { dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' | sort; }
purge_since() {  # LIST: every package that was not installed then
  local packages
  packages=$(comm -13 "$1" <(installed) | awk '{print $2}')
  # shellcheck disable=SC2086
  [[ -z $packages ]] || logged apt-get -qq -y purge $packages
  comm -3 "$1" <(installed) | none "not the packages that were installed"
}
files() {  # all but what programs write while they run, and what is not the system's
  find / -xdev \( -path "$scratch" -o -path "/home/$user" -o -path "$PWD" -o -path /proc -o -path /sys -o -path /dev \
    -o -path /run -o -path /tmp -o -path /root -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
    -o -path '/var/lib/dpkg/*-old' \) -prune -o -print | sort
}

step "The sources"
apt-get -qq update
# What users of the packages have, and lintian.
apt_install cmake g++ lintian ninja-build pkg-config python3 xz-utils
installed >"$scratch/users"
archive=$(src/package/source.sh "$scratch")
again=$(src/package/source.sh "$scratch/again")
cmp "$archive" "$again"
sha256sum "$archive"
tar -C "$scratch" -xf "$archive"

step "The packages, of these sources, without git"
mkdir "$scratch/no-git"
printf '#!/bin/sh\necho "git was called" >&2\nexit 1\n' >"$scratch/no-git/git"
chmod +x "$scratch/no-git/git"
SECONDS=0
PATH=$scratch/no-git:$PATH logged "$scratch"/kiln-*/src/package/debian.sh "$scratch/debian" "$@"
{ grep 'git was called' "$scratch/log" || true; } | none "the build needs git"
echo "built in $SECONDS s"
packages=()
for name in "${names[@]}"; do
  packages+=("$(echo "$scratch/debian/${name}_"*.deb)")
  [[ -s ${packages[-1]} ]] && continue
  grep -B 3 'could not be installed' "$scratch/log" >&2 || true
  echo "$name was not built" >&2
  exit 1
done
for package in "${packages[@]}"; do
  echo "${package##*/}: $(dpkg-deb -f "$package" Depends)"
done
useradd --create-home --shell /bin/bash "$user"
as_user lintian --version
as_user lintian --fail-on error "${packages[@]}"

step "Installed, where only users of the packages have been"
purge_since "$scratch/users"
files >"$scratch/before"
apt_install "${packages[@]}" python3-numpy
test -s /usr/share/man/man1/kiln.1.gz
bash -n /usr/share/bash-completion/completions/kiln
ldconfig -p | grep libkiln.so.0
python3 -c 'import kiln'  # by root, who may write beside the package

step "Used, by a user who is not root"
mkdir "$scratch/user"
cp -r tests/install "$scratch/user"
chown -R "$user" "$scratch/user"
as_user bash -euo pipefail -s "$scratch/user/install" <<'USER'
cd "$1"
id -un
expect() {  # PROGRAM...: prints what the README says
  local got
  got=$("$@" | xargs)
  [[ $got == "-0.2689 0.0000 2.1932 7.0464" ]] || { echo "$*: printed $got" >&2; exit 1; }
  echo "$*: $got"
}
read -ra flags <<<"$(pkg-config --cflags --libs kiln)"
gcc -std=c99 -Wall -Wextra -Wpedantic -Werror program.c "${flags[@]}" -o in_c
expect ./in_c
g++ -std=c++20 -Wall -Wextra -Werror program.cpp "${flags[@]}" -o in_cpp
expect ./in_cpp
cmake -G Ninja -S project -B built >built.log
cmake --build built >>built.log
expect built/program
expect python3 program.py
python3 -c 'import importlib.metadata as m, kiln; assert m.version("kiln") == kiln.__version__, kiln.__version__'
kiln doctor
kiln cache ls
kiln cache verify
USER

step "Removed"
logged apt-get -qq -y purge "${names[@]}"
purge_since "$scratch/users"
files >"$scratch/after"
comm -13 "$scratch/before" "$scratch/after" | none "left behind"
{ ldconfig -p | grep libkiln || true; } | none "the loader still knows"
echo "Nothing is left but the user's cache: $(du -sh "/home/$user/.cache/kiln")"
