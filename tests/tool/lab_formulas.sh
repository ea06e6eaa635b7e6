# long: lab/simulate --local: 1,024 ranks, N = 2^20, bytes and messages equal to the formulas.
# limit: 1800
. "$(dirname "$0")/common.bash"
not_simulated
program=$(dirname "$(dirname "$RILL")")/lab/simulate_local
[[ -x $program ]] || skip "there is no $program"
# One after the other: all ranks' memory is this machine's, and 5 GB of it are taken. Where results
# are dense, N is less.
formulas() { run 0 "$program" --ranks 1024 --no-compute --formulas --steps 3 "$@"; }
for algorithm in recursive_double split_allgather recursive_halving ring allgather hier; do
    formulas --density 1e-4 --algorithm $algorithm
done
for algorithm in block dsar recursive_halving dense; do
    formulas --dim 2^16 --density 0.0016 --block 16 --algorithm $algorithm
done
for algorithm in gtopk spardl; do
    formulas --density 0.01 --reducer --algorithm $algorithm
done
