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
run 0 "$program" --ranks 64 --dim 2^14 --density 0.01 --algorithm allgather,ring --no-compute --steps 3
k=164
expected=$((63 * ((4 * k + 7) / 8 * 8 + 4 * k)))
[[ $(column allgather 7) == "$expected" ]] || fail "allgather sends $(column allgather 7) bytes of entries, not $expected"
awk -v bytes="$(column allgather 5)" -v seconds="$(column allgather 3)" 'BEGIN {
    ideal = 6 * 20e-6 + bytes * 8 / 9.56e9
    exit !(seconds > 0.99 * ideal && seconds < 1.01 * ideal) }' ||
    fail "allgather takes $(column allgather 3) s"
[[ $(column ring 6) == 126 ]] || fail "ring sends $(column ring 6) messages"

# SparDL: 4k(P-1)/P words for any P; Ok-Topk the same order. Not more with more ranks, but for
# headers.
run 0 "$program" --ranks 16 --reducer --dim 2^14 --density 0.05 --algorithm spardl,oktopk --steps 4
spardl=$(column spardl 7) oktopk=$(column oktopk 7)
run 0 "$program" --ranks 64 --reducer --dim 2^14 --density 0.05 --algorithm spardl,oktopk --steps 4
(($(column spardl 7) * 10 <= spardl * 11)) || fail "spardl sends $spardl bytes on 16 ranks, $(column spardl 7) on 64"
(($(column oktopk 7) * 10 <= oktopk * 12)) || fail "oktopk sends $oktopk bytes on 16 ranks, $(column oktopk 7) on 64"
awk -v bytes="$(column spardl 7)" 'BEGIN { k = 819; words = 4 * k * 63 / 64; exit !(bytes <= 1.1 * 4 * words) }' ||
    fail "spardl sends $(column spardl 7) bytes"

# What MPI would sum itself is rill's own sum here: by doubling, all values in each of two rounds.
run 0 "$program" --ranks 4 --dim 1000 --density 0.1 --algorithm dense
(($(column dense 6) == 2 && $(column dense 7) >= 2 * 4 * 1000)) || fail "dense: $(cat "$tmp/out")"
run 2 "$program" --ranks 0
run 2 "$program" --ranks 4 --density 2
