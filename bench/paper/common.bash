# Sourced by the scripts of bench/paper: options, the three ways to run, and where records go.
# shellcheck shell=bash disable=SC2034 # variables are for the scripts
set -euo pipefail
name=$(basename "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$root/build}
RILL=${RILL:-$BUILD/bin/rill}
SMPI_BUILD=${SMPI_BUILD:-$root/build-smpi}

# begin "$@": reads the options, empties the records of this item.
begin() {
    quick=0
    local option
    for option in "$@"; do
        case $option in
        --quick) quick=1 ;;
        --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
        *) echo "bench/paper/$name: unknown '$option' (--quick, --help)" >&2 && exit 2 ;;
        esac
    done
    if ((quick)); then
        RESULTS=${RESULTS:-$BUILD/paper} IMAGES=${IMAGES:-$BUILD/paper}
    fi
    RESULTS=${RESULTS:-$root/bench/results/paper} IMAGES=${IMAGES:-$root/docs/img}
    mkdir -p "$RESULTS" "$IMAGES"
    records=$RESULTS/$name.jsonl
    part=$(mktemp)
    trap 'rm -f "$part"' EXIT
    : >"$records"
    failed=0
    seconds_at_start=$SECONDS
}

# pick NORMAL QUICK: one of two settings; a variable of the environment goes before both, by the
# caller.
pick() { if ((quick)); then echo "$2"; else echo "$1"; fi; }

# keep LABEL: adds the records of the last run, marked with what they are about.
keep() {
    sed "s/^{/{\"case\":\"$1\",/; s/,\"times_s\":\[[^]]*\]//" "$part" >>"$records"
    : >"$part"
    echo "$name: $1 ($((SECONDS - seconds_at_start)) s)" >&2
}

# simulated LABEL RANKS PLATFORM [OPTION of lab/simulate...] -- ARGUMENT of rill bench...
simulated() {
    local label=$1 ranks=$2 platform=$3 options=()
    shift 3
    while [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    "$root/lab/simulate" --build "$SMPI_BUILD" --ranks "$ranks" --platform "$platform" "${options[@]}" -- \
        "$@" --quiet --json "$part" || failed=1
    keep "$label"
}

# dense LABEL RANKS PLATFORM BYTES...: MPI_Allreduce of dense floats, simulated, buffers shared by
# all ranks.
dense() {
    local label=$1 ranks=$2 platform=$3
    shift 3
    "$root/lab/simulate" --build "$SMPI_BUILD" --ranks "$ranks" --platform "$platform" --no-compute \
        --program "$root/bench/paper/dense_allreduce.c" -- "$@" >"$part" || failed=1
    keep "$label"
}

# native LABEL RANKS ARGUMENT...: on this host.
native() {
    local label=$1 ranks=$2
    shift 2
    if [[ ! -x $RILL ]]; then
        echo "bench/paper/$name: there is no $RILL: run make first, or set BUILD" >&2
        exit 1
    fi
    "$RILL" bench "$@" --ranks "$ranks" --quiet --json "$part" || failed=1
    keep "$label"
}

# end: table and plot of the records.
end() {
    echo "$name: $((SECONDS - seconds_at_start)) s" >&2
    if [[ -s $records ]]; then "$root/bench/records.py" "$records"; fi
    "$root/bench/paper/plot" "$name" "$records" "$IMAGES" || failed=1
    exit "$failed"
}
