# kill -9 of a rank in the middle of training: the job ends with a message, the last checkpoint
# loads, and the resumed run ends in the same bits as one that was never killed.
. "$(dirname "$0")/common.bash"
not_simulated
[[ -r /proc/self/environ ]] || skip "ranks are found through /proc"

awk 'BEGIN { srand(11); for (i = 0; i < 900; i++) { s = 0; line = ""
    for (j = 1; j <= 80; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s > 0 ? "+1" : "-1") line } }' >"$tmp/data"

# The process that is rank 1 of a job on this test's data.
rank_one() {
    local pid
    for pid in $(pgrep -f -- "train $tmp/data" || true); do
        # Not behind a pipe: grep ends at the first match, and who writes to it would fail.
        if grep -zqE '^(PMIX_RANK|PMI_RANK)=1$' "/proc/$pid/environ" 2>/dev/null; then
            echo "$pid"
            return
        fi
    done
}

for way in "" "--reducer oktopk --density 0.2"; do
    rm -f "$tmp"/check* "$tmp/log"
    # shellcheck disable=SC2086
    setsid "$RILL" train "$tmp/data" --ranks 3 --batch 2 --epochs 1000000 $way \
        --checkpoint "$tmp/check" --log "$tmp/log" >"$tmp/out" 2>"$tmp/err" &
    job=$!
    for ((i = 0; i < 600; i++)); do
        if [[ -f $tmp/log && $(wc -l <"$tmp/log") -ge 3 ]]; then break; fi
        sleep 0.1
    done
    victim=$(rank_one)
    [[ -n $victim ]] || fail "there is no rank 1: $(cat "$tmp/out" "$tmp/err")"
    kill -9 "$victim"
    began=$SECONDS status=0
    for ((i = 0; i < 150; i++)); do
        if ! kill -0 "$job" 2>/dev/null; then break; fi
        sleep 0.1
    done
    if kill -0 "$job" 2>/dev/null; then
        kill -9 -- "-$job"
        fail "15 s after a rank was killed the job still runs"
    fi
    wait "$job" || status=$?
    ((SECONDS - began <= 10)) || fail "the job ended $((SECONDS - began)) s after a rank was killed"
    [[ $status == 1 ]] || fail "status $status, not 1"
    grep -qi "kill" "$tmp/err" || fail "no message about the killed rank: $(cat "$tmp/err")"

    # Where the checkpoint is, is one of the last epochs of the log; a few more than that.
    epochs=$(($(tail -n 1 "$tmp/log" | grep -oE '"epoch":[0-9]+' | cut -d: -f2) + 3))
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/data" --ranks 3 --batch 2 --epochs "$epochs" $way \
        --checkpoint "$tmp/check" --resume --log "$tmp/rest" --model "$tmp/resumed" --quiet
    (($(wc -l <"$tmp/rest") < epochs)) || fail "the resumed run began anew"
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/data" --ranks 3 --batch 2 --epochs "$epochs" $way \
        --model "$tmp/whole" --quiet
    cmp -s "$tmp/whole" "$tmp/resumed" || fail "the resumed run ends in other bits: $way"
    rm -f "$tmp/rest"
done
