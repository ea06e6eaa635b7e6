# rill bench overlap: every kind of progress, complete records, checked results. No times.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" bench overlap --ranks 2 --dim 20000 --nnz 6000 --reps 2 --warmup 1 \
    --algorithm auto,dense,split_allgather --json "$tmp/json"
has "$tmp/out" "2 ranks" pure compute both overlap thread poll none
all_correct "$tmp/json"
[[ $(wc -l <"$tmp/json") == 9 ]] || fail "not three records for each of three algorithms"
for key in kind requested algorithm codec value_bits type ranks dim density nnz_in nnz_out \
    progress poll_us reps cpus_per_rank t_pure_s t_compute_s t_both_s overlap correct \
    mpi_library isa commit; do
    [[ $(grep -c "\"$key\":" "$tmp/json") == 9 ]] || fail "no $key in records"
done
for progress in thread poll none; do
    [[ $(grep -c "\"progress\":\"$progress\"" "$tmp/json") == 3 ]] || fail "not three of $progress"
done

run 0 "$RILL" bench overlap --dim 5000 --density 1% --reps 1 --progress thread \
    --codec bitpack --value-bits 8 --algorithm recursive_double --json -
cp "$tmp/out" "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"codec":"bitpack"' '"value_bits":8' '"nnz_in":50,'

# The check finds what is wrong.
run 1 env RILL_BENCH_FAULT=1 \
    "$RILL" bench overlap --dim 5000 --reps 1 --progress thread --json "$tmp/json"
has "$tmp/json" '"correct":false'

# By the environment, for any command.
run 0 env RILL_PROGRESS_THREAD=1 "$RILL" bench --dim 5000 --reps 1 --nonblocking --json "$tmp/json"
all_correct "$tmp/json"

run 2 "$RILL" bench overlap --progress magic
has "$tmp/err" "--progress: 'magic' is not one of thread, poll, none"
run 2 "$RILL" bench overlap --algorithm magic
has "$tmp/err" "--algorithm: 'magic'"
run 2 "$RILL" bench overlap --dim 10 --nnz 11
has "$tmp/err" "--nnz: 11 is more than the dimension 10"
run 2 "$RILL" bench overlap --nnz 1 --density 1%
has "$tmp/err" "only one of them"
