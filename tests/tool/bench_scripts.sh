# The scripts of bench: what they say of themselves, and options that they do not have.
. "$(dirname "$0")/common.bash"
not_simulated
[[ -x /usr/bin/python3 ]] || skip "there is no /usr/bin/python3"
bench=$root/bench
export RILL PYTHONDONTWRITEBYTECODE=1

for script in run network conditions volume instructions ranks peers_topk convergence/run \
    paper/{balancing,block_sparse,scaling} \
    paper/{dsar_ceiling,expected_union,gtopk_time,time_density,time_ranks,volumes}; do
    run 0 "$bench/$script" --help
    has "$tmp/out" "usage: bench/$script"
done
for script in run network conditions ranks convergence/run paper/scaling; do
    run 2 "$bench/$script" --fast
    has "$tmp/err" "unknown '--fast'"
done
run 2 "$bench/cuda/run"

# Tables of the committed records.
run 0 "$bench/volume_table" "$bench/results/volume.jsonl"
has "$tmp/out" "| gtopk | 2 | 4,096 | 4,096 | 1.00 |"
