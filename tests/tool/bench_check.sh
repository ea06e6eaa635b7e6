# The check of rill bench must find what is wrong: RILL_BENCH_FAULT falsifies a value.
. "$(dirname "$0")/common.bash"
not_simulated

for collective in allreduce reduce_scatter allgather bcast; do
    run 1 env RILL_BENCH_FAULT=1 "$RILL" bench --dim 999 --reps 1 --collective $collective \
        --algorithm auto --json "$tmp/json"
    has "$tmp/err" "auto: incorrect: rank 1, index 0: the result is"
    has "$tmp/json" '"correct":false' '"detail":"rank 1, index 0'
    grep -qE '^auto.* NO$' "$tmp/out" || fail "the table does not show it"
done
