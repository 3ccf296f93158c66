#!/bin/bash
# page.sh PAGE [--write]: does what a page says, in a directory of its own, against the installation. A block
# of C++ becomes program.cpp, one of Python program.py; commands after "$ " run in one shell, and print what
# the page says, but for the width of a table's columns. A page with a block of a patch, change.diff, is done
# in a copy of the sources. --write puts what they print into the page. CMakeLists.txt sets the variables.
set -euo pipefail
page=$1
[[ $page == /* ]] || page=$SOURCE/$page
directory=$SCRATCH/pages/${1//\//-}
rm -rf "$directory"
mkdir -p "$directory/bin" "$directory/blocks"
if grep -q '^```diff' "$page"; then
  tar -C "$SOURCE" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$directory" -xf -
else
  ln -s "$SOURCE/tests" "$SOURCE/bench" "$directory"
fi
prefix=$SCRATCH/prefix

# The names by which a page calls what this build has.
cat >"$directory/bin/c++" <<WRAPPER
#!/bin/bash
exec $(printf '%q' "$CXX") ${FLAGS:+-fsanitize=$FLAGS} "\$@"
WRAPPER
chmod +x "$directory/bin/c++"
export CXX CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER:-}
export PATH=$directory/bin:$prefix/bin:$PATH
export PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig LD_LIBRARY_PATH=$prefix/$LIBDIR
if [[ -n ${KILN_CACHE_DIR:-} ]]; then  # of its own, with what is known of compilers
  toolchains=$KILN_CACHE_DIR/toolchains.json
  export KILN_CACHE_DIR=$directory/cache
  install -d -m 700 "$KILN_CACHE_DIR"
  [[ ! -f $toolchains ]] || install -m 600 "$toolchains" "$KILN_CACHE_DIR"
fi

cd "$directory"
awk '
  function name(language) {
    return language == "cpp" ? "program.cpp" : language == "python" ? "program.py" : language == "diff" ? "change.diff" : ""
  }
  /^```/ && !inside { inside = 1; language = substr($0, 4); block = "blocks/" ++blocks; next }
  /^```/ {
    if (language != "console" && name(language)) print "cp " block " " name(language)
    inside = 0
    next
  }
  !inside { next }
  language != "console" { print >block; next }
  { print >"said" }
  /^\$ / {
    command = substr($0, 3)
    gsub(/\047/, "\047\\\047\047")
    print "printf \"%s\\n\" \047" $0 "\047"
    print command
  }' "$page" >commands
[[ -s said ]] || { echo "$page has no commands" >&2; exit 1; }
bash commands >printed

if [[ ${2:-} == --write ]]; then
  awk '
    BEGIN { while ((getline line <"printed") > 0) { if (line ~ /^\$ /) ++commands; else out[commands] = out[commands] line "\n" } }
    /^```/ { console = !inside && $0 == "```console"; inside = !inside; print; next }
    console && !/^\$ / { next }
    { print }
    console { printf "%s", out[++written] }' "$page" >written
  cp written "$page"
fi
diff <(sed -E 's/ +/ /g; s/ $//' said) <(sed -E 's/ +/ /g; s/ $//' printed) || [[ ${2:-} == --write ]]
