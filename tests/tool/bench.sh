# rill bench over collectives, types, operations, overlaps and forms: it starts its ranks, every
# case is correct, and records are complete.
. "$(dirname "$0")/common.bash"
not_simulated

# MPICH spins: with more ranks than cores everything takes milliseconds.
three=3
if "$RILL" --version | grep MPICH >/dev/null; then three=2; fi

bench() {
    run 0 "$RILL" bench --reps 2 --warmup 1 --quiet --json "$tmp/json" "$@"
    [[ ! -s $tmp/out ]] || fail "--quiet, and there is something on stdout"
    all_correct "$tmp/json"
}

bench --ranks $three --dim 1000,1 --density 10%,0,100%
has "$tmp/json" '"malloc_tuned":true'
[[ $(grep -c '"requested":"mpi"' "$tmp/json") == 6 ]] || fail "not 6 records of the baseline"
[[ $(grep -c '"requested":"auto"' "$tmp/json") == 6 ]] || fail "not 6 records of auto"
for key in requested algorithm codec value_bits op type ranks hosts dim density nnz_in nnz_out \
    median_s p25_s p75_s predicted_s sent_bytes_max recv_bytes_max messages_max rounds speedup \
    correct commit collective overlap mpi_library times_s; do
    [[ $(grep -c "\"$key\":" "$tmp/json") == $(wc -l <"$tmp/json") ]] || fail "no $key in records"
done
has "$tmp/json" "\"ranks\":$three,\"hosts\":1,\"dim\":1000,\"density\":0.1,\"nnz_in\":100"

for collective in reduce reduce_scatter allgather bcast; do
    bench --ranks $three --dim 1003 --density 7% --collective "$collective"
done
for type in f64 f16 bf16; do bench --ranks 2 --dim 5000 --type $type; done
for op in min max prod; do bench --ranks $three --dim 5000 --density 20% --op $op; done
bench --ranks 2 --dim 3000 --type f16 --op prod --density 30%
bench --ranks 2 --dim 3000 --type bf16 --op max --density 30%
for overlap in none full zipf; do
    bench --ranks $three --dim 20000 --density 2% --overlap $overlap
done
for form in sparse dense; do bench --ranks 2 --dim 5000 --density 30% --form $form; done
for mode in --nonblocking --persistent; do
    bench --ranks $three --dim 5000 $mode
    bench --ranks 2 --dim 5000 $mode --collective reduce_scatter
done
bench --ranks 2 --dim 5000 --codec all --algorithm recursive_double,split_allgather --order blocks
bench --ranks 1 --dim 5000
bench --ranks 2 --dim 2^33 --nnz 1000 --algorithm split_allgather,ring
bench --ranks 2 --dim 5000 --algorithm ring --no-baseline --no-malloc-tuning
[[ $(grep -c . "$tmp/json") == 1 ]] || fail "--no-baseline, and there is more than one record"
has "$tmp/json" '"speedup":null' '"malloc_tuned":false'

# The same seed gives the same input; the dump is what it says.
bench --ranks 2 --dim 5000 --nnz 40 --algorithm ring --dump "$tmp/a"
bench --ranks 2 --dim 5000 --nnz 40 --algorithm ring --dump "$tmp/b"
for rank in 0 1; do
    cmp "$tmp/a-5000-40-$rank.idx" "$tmp/b-5000-40-$rank.idx" || fail "the input does not repeat"
    [[ $(stat -c %s "$tmp/a-5000-40-$rank.idx") == 320 ]] || fail "not 40 indices"
    [[ $(stat -c %s "$tmp/a-5000-40-$rank.val") == 160 ]] || fail "not 40 values"
done
if cmp -s "$tmp/a-5000-40-0.idx" "$tmp/a-5000-40-1.idx"; then fail "ranks have the same input"; fi

# The table, and JSON on stdout.
run 0 "$RILL" bench --dim 5000 --reps 2
has "$tmp/out" "2 ranks on 1 host" "dim 5,000  density 1 %  nnz per rank 50" median speedup "mpi "
[[ ! -s $tmp/err ]] || fail "stderr is no terminal, and there is something on it"
run 0 "$RILL" bench --dim 5000 --reps 2 --json -
all_correct "$tmp/out"
