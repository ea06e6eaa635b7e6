# long: bench/paper: the commands of the papers' figures, in small. Each must run, be correct, and
# print its table.
. "$(dirname "$0")/common.bash"
paper=$root/bench/paper
export RILL BUILD=$tmp RESULTS=$tmp/results IMAGES=$tmp/images

run 2 "$paper/scaling" --fast
has "$tmp/err" "unknown '--fast'"
run 0 "$paper/scaling" --help
has "$tmp/out" "bandwidth term"
for item in "$paper"/*; do # every command is in the list
    [[ -x $item && $item != */plot ]] || continue
    has "$paper/README.md" "bench/paper/$(basename "$item")"
done

# item NAME TEXT...: runs it, checks its records, finds the texts in its table.
item() {
    local name=$1
    shift
    run 0 "$paper/$name" --quick
    [[ -s $RESULTS/$name.jsonl ]] || fail "$name wrote no records"
    if grep '"correct":false' "$RESULTS/$name.jsonl"; then fail "$name: a case is not correct"; fi
    has "$tmp/out" "|---|" "$@"
}
if [[ $(basename "${MPIEXEC:-}") == smpirun ]]; then
    SMPI_BUILD=$(cd "$(dirname "$RILL")/.." && pwd)
    export SMPI_BUILD
    item expected_union "N = 512"
    item dsar_ceiling "ceiling"
    item time_ranks "recursive_double"
    item gtopk_time "gtopk"
    item balancing "naive / both"
    LAMBDAS=0.5 item block_sparse "OmniReduce"
    RANKS=4 ALGORITHMS="oktopk allgather" item scaling "bandwidth term"
    exit 0
fi
if python3 -c 'import numpy' 2>/dev/null && [[ -d /usr/share/datasets/fashion-mnist ]]; then
    item fill_in "network"
fi
RANKS=2 item volumes "oktopk" "spardl"

# Records that are not there, and an item that is not, are errors.
: >"$tmp/empty"
run 1 "$paper/plot" volumes "$tmp/empty" "$tmp"
has "$tmp/err" "is empty"
run 1 "$paper/plot" nothing "$tmp/empty" "$tmp"
has "$tmp/err" "Items: fill_in"
