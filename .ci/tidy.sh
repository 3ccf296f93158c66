# shellcheck shell=bash
# ./check --tidy: clang-tidy, one process for each source. Sourced by check, after packages.sh.

# The sources to look at when somebody looks at these files: a header is seen by the source of its name,
# or else by one that includes it.
tidy_sources() {
  local file
  for file in "$@"; do
    case $file in
      *.cpp) echo "$file" ;;
      *.hpp | *.inl)
        if [[ -f ${file%.*}.cpp ]]; then
          echo "${file%.*}.cpp"
        else
          git grep -l -F "${file##*/}\"" -- '*.cpp' | head -n 1
        fi ;;
    esac
  done | sort -u
}

# What differs from where this branch left its upstream, or main, or else from the last commit.
tidy_changed() {
  local base=HEAD upstream
  for upstream in '@{upstream}' origin/HEAD origin/main main; do
    base=$(git merge-base HEAD "$upstream" 2>/dev/null) && break || base=HEAD
  done
  git diff --name-only --diff-filter=d "$base"
  git ls-files --others --exclude-standard
}

# run_tidy LONG [FILE...]
run_tidy() {
  local long=$1 tree=build/tidy files=() sources=() absent=() file failed=0
  shift
  install_packages "${packages[@]}" clang-tidy
  # A tree of its own: clang reads no header that another compiler has precompiled.
  build_tree "$tree" "$tree/build.log" "${options[@]}" -DKILN_QUICK_BUILD=OFF -- kiln_preamble

  if (($#)); then
    for file in "$@"; do [[ -f $file ]] || usage "there is no file $file"; done
    files=("$@")
  elif [[ $long ]]; then
    mapfile -t files < <(git ls-files '*.cpp')
  else
    mapfile -t files < <(tidy_changed)
  fi
  for file in $(tidy_sources "${files[@]}"); do
    # What is not built here (another platform, a user's project) has no command to read it by.
    if grep -q -F "\"file\": \"$PWD/$file\"" "$tree/compile_commands.json"; then
      sources+=("$file")
    else
      absent+=("$file")
    fi
  done
  ((${#absent[@]} == 0)) || printf 'Skipped, not built here: %s\n' "${absent[@]}"

  rm -rf "$tree/found"
  mkdir -p "$tree/found"
  if ((${#sources[@]})); then
    # shellcheck disable=SC2016
    printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c '
      found=$1/found/${2//\//_}
      clang-tidy -p "$1" --quiet --warnings-as-errors="*" --extra-arg=-Wno-unknown-warning-option "$2" \
        >"$found" 2>"$found.log" || { cat "$found" "$found.log" >"$found.failed"; }' tidy "$tree" || true
    cat "$tree"/found/*.failed 2>/dev/null || true
    failed=$(find "$tree/found" -name '*.failed' | wc -l)
  fi
  echo "$((${#sources[@]} - failed)) passed, $failed failed, ${#absent[@]} skipped"
  ((failed == 0))
}
