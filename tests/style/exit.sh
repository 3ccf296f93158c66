#!/bin/bash
# exit.sh LIBRARY.a: nothing of the library is destroyed when the process ends. Threads that compile in
# the background still run then, and would use it. What lives as long as the process is never
# destroyed: `static auto* const x = new T`.
set -euo pipefail

symbols=$(nm --undefined-only "$1" 2>/dev/null)
[[ $symbols == *" U _Znwm"* ]] || { echo "$1 has no objects to look at"; exit 1; }
destroyed=$(awk '/:$/ {object = $1} $2 == "__cxa_atexit" {print object}' <<<"$symbols")
[[ -z $destroyed ]] || { printf 'Destroyed at exit is something of\n%s\n' "$destroyed"; exit 1; }
