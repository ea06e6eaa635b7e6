# lab/simulate --local: bytes and times of many ranks on a virtual clock, against the formulas.
. "$(dirname "$0")/common.bash"
not_simulated
program=$(dirname "$(dirname "$RILL")")/lab/simulate_local
[[ -x $program ]] || skip "there is no $program"

column() { # column ALGORITHM NUMBER: of the last output
    awk -v name="$1" -v at="$2" '$1 == name { print $at }' "$tmp/out"
}

# Every rank sends P - 1 parts of k pairs: indices padded to 8 bytes, values as they are. ceil(log2
# P) latencies, and the bytes.
run 0 "$program" --ranks 64 --dim 2^14 --density 0.01 --algorithm allgather,ring --no-compute \
    --steps 3
k=164
expected=$((63 * ((4 * k + 7) / 8 * 8 + 4 * k)))
[[ $(column allgather 7) == "$expected" ]] ||
    fail "allgather sends $(column allgather 7) bytes of entries, not $expected"
awk -v bytes="$(column allgather 5)" -v seconds="$(column allgather 3)" 'BEGIN {
    ideal = 6 * 20e-6 + bytes * 8 / 9.56e9
    exit !(seconds > 0.99 * ideal && seconds < 1.01 * ideal) }' ||
    fail "allgather takes $(column allgather 3) s"
[[ $(column ring 6) == 126 ]] || fail "ring sends $(column ring 6) messages"

# Bytes and messages of every algorithm equal those that follow from the inputs, and are those of
# the papers' formulas. Some sums are sparse, some turn dense.
formulas() { # formulas ROWS OPTION...: so many algorithms have a formula, and all are right
    local rows=$1
    shift
    run 0 "$program" --dim 2^16 --no-compute --formulas --block 16 "$@"
    [[ $(grep -cE ' yes  ' "$tmp/out") == "$rows" ]] || fail "$*: $(cat "$tmp/out")"
}
for ranks in 16 64; do
    formulas 9 --ranks $ranks --density 0.01 --steps 3
    formulas 9 --ranks $ranks --density 0.001 --steps 3
    formulas 1 --ranks $ranks --per-host 4 --density 0.001 --steps 3 --algorithm hier
    formulas 4 --ranks $ranks --density 0.01 --steps 20 --reducer
done
# A wrong formula is seen: the agreement of the first calls is no part of one.
run 1 "$program" --ranks 16 --dim 2^16 --formulas --algorithm dense --steps 1
has "$tmp/out" " NO "

# SparDL: 4k(P-1)/P words for any P; Ok-Topk the same order. Not more with more ranks, but for
# headers.
reducers="--reducer --dim 2^14 --density 0.05 --algorithm spardl,oktopk --steps 4"
# shellcheck disable=SC2086 # words
run 0 "$program" --ranks 16 $reducers
spardl=$(column spardl 7) oktopk=$(column oktopk 7)
# shellcheck disable=SC2086
run 0 "$program" --ranks 64 $reducers
(($(column spardl 7) * 10 <= spardl * 11)) ||
    fail "spardl sends $spardl bytes on 16 ranks, $(column spardl 7) on 64"
(($(column oktopk 7) * 10 <= oktopk * 12)) ||
    fail "oktopk sends $oktopk bytes on 16 ranks, $(column oktopk 7) on 64"

# What MPI would sum itself is rill's own sum here: by doubling, all values in each of two rounds.
run 0 "$program" --ranks 4 --dim 1000 --density 0.1 --algorithm dense
(($(column dense 6) == 2 && $(column dense 7) >= 2 * 4 * 1000)) || fail "dense: $(cat "$tmp/out")"
run 2 "$program" --ranks 0
run 2 "$program" --ranks 4 --density 2
run 2 "$program" --ranks 4 --per-host 3
