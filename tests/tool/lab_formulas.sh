# long: lab/simulate --local: 1,024 ranks, N = 2^20, bytes and messages equal to the formulas.
# limit: 1800
. "$(dirname "$0")/common.bash"
not_simulated
program=$(dirname "$(dirname "$RILL")")/lab/simulate_local
[[ -x $program ]] || skip "there is no $program"
# One after the other: all ranks' memory is this machine's.
for algorithm in recursive_double split_allgather ring allgather block hier; do
    run 0 "$program" --ranks 1024 --density 1e-4 --no-compute --formulas --steps 3 --block 16 \
        --algorithm $algorithm
done
for algorithm in gtopk spardl; do
    run 0 "$program" --ranks 1024 --density 0.01 --no-compute --formulas --steps 3 --reducer \
        --algorithm $algorithm
done
