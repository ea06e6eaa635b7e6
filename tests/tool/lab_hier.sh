# long: hier on 2 emulated hosts of 4 ranks: what several ranks of a host have in common crosses the
# link once.
. "$(dirname "$0")/common.bash"
not_simulated
status=0
"$root/lab/cluster" --hosts 1 --rate 1gbit --no-verify -- true >"$tmp/out" 2>"$tmp/err" || status=$?
if ((status == 77)); then skip "$(<"$tmp/err")"; fi

# crossed ALGORITHM OVERLAP: bytes that crossed the fuller link. The bench's own check of the
# result, a dense sum of 64 Ki entries, is among them; so many calls that it hardly counts.
crossed() {
    run 0 "$root/lab/cluster" --hosts 2 --rate 1gbit --ranks-per-host 4 --no-verify \
        --bytes "$tmp/bytes" -- \
        "$RILL" bench --algorithm "$1" --no-baseline --dim 2^16 --density 5% --overlap "$2" \
        --warmup 1 --reps 300 --json "$tmp/json"
    all_correct "$tmp/json"
    has "$tmp/json" "\"algorithm\":\"$1\"" '"ranks":8' '"hosts":2'
    sed -n 's/.*"sent_bytes":\([0-9]*\).*/\1/p' "$tmp/bytes" | sort -n | tail -1
}

for overlap in full none; do
    most=1000
    if [[ $overlap == full ]]; then most=350; fi # of 1000: the goal
    hier=$(crossed hier $overlap)
    for flat in recursive_double split_allgather; do
        if [[ $overlap$flat == nonesplit_allgather ]]; then continue; fi # it sends more still
        bytes=$(crossed $flat $overlap)
        share=$((1000 * hier / bytes))
        echo "overlap $overlap: hier $hier bytes, $flat $bytes: $share of 1000"
        ((share <= most)) || fail "overlap $overlap: hier sent $share of 1000 of what $flat sent"
    done
done
