# Sourced by the tests of the tool. RILL is the binary; a scratch folder is in $tmp.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
RILL=${RILL:-$root/build/bin/rill}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

[[ -x $RILL ]] || skip "there is no $RILL"

# A build for SimGrid runs under smpirun only: bench_smpi.sh tests it.
not_simulated() {
    if [[ $(basename "${MPIEXEC:-}") == smpirun ]]; then skip "a build for SimGrid"; fi
}

# run STATUS COMMAND...: runs it, with its output in $tmp/out and $tmp/err, and checks its status.
run() {
    local wanted=$1 got=0
    shift
    "$@" >"$tmp/out" 2>"$tmp/err" || got=$?
    if [[ $got != "$wanted" ]]; then
        cat "$tmp/out" "$tmp/err" >&2
        fail "status $got, not $wanted: $*"
    fi
}

# has FILE TEXT...: each text (fixed) is in the file.
has() {
    local file=$1 text
    shift
    for text in "$@"; do
        if ! grep -qF -- "$text" "$file"; then
            cat "$file" >&2
            fail "'$text' is not in $(basename "$file")"
        fi
    done
}

# all_correct FILE: a file of JSON lines, not empty, in which every case is correct.
all_correct() {
    [[ -s $1 ]] || fail "$1 is empty"
    if grep -v '"correct":true' "$1" >&2; then fail "a case is not correct"; fi
}

number() { # number NAME FILE: the value behind a word
    grep -oE "$1 [-0-9.e+]+" "$2" | tail -n 1 | cut -d' ' -f2
}
least() { # least A B TEXT: a >= b
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }' || fail "$3: $1 is below $2"
}
