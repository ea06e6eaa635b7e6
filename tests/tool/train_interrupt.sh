# rill train: how far it is, in lines and as a bar; Ctrl-C ends it after the step on all ranks,
# whatever started them, with a checkpoint that it goes on from; a rank that is killed is named.
. "$(dirname "$0")/common.bash"
not_simulated

awk 'BEGIN { srand(5); for (i = 0; i < 600; i++) { s = 0; line = ""
    for (j = 1; j <= 40; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s > 0 ? "+1" : "-1") line } }' >"$tmp/data"
slow=(--C 1 --solver sgd --batch 1 --epochs 1000000 --checkpoint "$tmp/check")

# Lines of an epoch and of the search; none without --progress's seconds, or quietly; a bar where
# the launcher has seen a terminal.
quick=("$RILL" train "$tmp/data" --epochs 3 --solver sgd --batch 1)
run 0 "${quick[@]}" --progress 1e-9
has "$tmp/err" "C is chosen: trainings of rank 0: " "epoch 1: " " s left"
run 0 env RILL_BENCH_PROGRESS=1 "${quick[@]}" --C 1 --progress 1e-9
has "$tmp/err" $'\repoch 1 [' '....]' $'\r\033[K'
run 0 "${quick[@]}" --progress 0
[[ ! -s $tmp/err ]] || fail "--progress 0 shows $(cat "$tmp/err")"
run 0 "${quick[@]}" --progress 1e-9 --quiet
[[ ! -s $tmp/err ]] || fail "--quiet shows $(cat "$tmp/err")"
run 2 "$RILL" train "$tmp/data" --progress often
has "$tmp/err" "--progress: 'often' is not a number"
run 2 "$RILL" train "$tmp/data" --progress -1
has "$tmp/err" "--progress: '-1' is not a number of at least 0"

# start COMMAND...: as a job of its own. What the last one printed is gone before it starts: who
# waits for words must not find those.
start() {
    : >"$tmp/out"
    : >"$tmp/err"
    setsid "$@" >"$tmp/out" 2>"$tmp/err" &
    job=$!
}

# wait_for TEXT: until the job has printed it.
wait_for() {
    for ((i = 0; i < 600; i++)); do
        if grep -qF -- "$1" "$tmp/out" "$tmp/err"; then return; fi
        sleep 0.1
    done
    fail "no '$1': $(cat "$tmp/out" "$tmp/err")"
}

ways=("" "--link local --ranks 2" "--link ucx --ranks 2")
"$RILL" info >"$tmp/info"
if grep -q "^MPI library" "$tmp/info"; then ways+=("--link mpi --ranks 2"); fi
for way in "${ways[@]}"; do
    rm -f "$tmp/check"
    # shellcheck disable=SC2086
    start env RILL_BENCH_PROGRESS=1 "$RILL" train "$tmp/data" "${slow[@]}" $way
    wait_for "classify: "
    sleep 0.5
    kill -INT "$job"
    status=0
    wait "$job" || status=$?
    [[ $status == 1 ]] ||
        fail "$way: status $status of an interrupted run, not 1: $(cat "$tmp/err")"
    has "$tmp/err" "ends after this step" "interrupted " "go on with: rill train" "--resume"
    if grep -q "signal" "$tmp/err"; then fail "$way: $(cat "$tmp/err")"; fi
    [[ -s $tmp/check ]] || fail "$way: no checkpoint"
    epoch=$(grep -oE 'interrupted (in|after) epoch [0-9]+' "$tmp/err" | grep -oE '[0-9]+')
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/data" "${slow[@]}" $way --epochs "$((epoch + 1))" --resume
    (($(grep -c "^epoch" "$tmp/out") <= 2)) ||
        fail "$way: it did not go on where it was: $(cat "$tmp/out")"
done

# The second time it ends at once.
start "$RILL" train "$tmp/data" "${slow[@]}" --link ucx --ranks 2
wait_for "classify: "
kill -INT "$job"
sleep 0.02
kill -INT "$job" || true
wait "$job" && fail "an interrupted run has status 0"

# A rank that is killed is named, and the others are ended.
[[ -r /proc/self/environ ]] || exit 0
offspring() {
    local child
    for child in $(pgrep -P "$1" || true); do
        echo "$child"
        offspring "$child"
    done
}
for way in "${ways[@]:2}"; do
    # shellcheck disable=SC2086
    start "$RILL" train "$tmp/data" "${slow[@]}" $way
    wait_for "classify: "
    victim=
    for pid in $(offspring "$job"); do
        if grep -qzsE '^(RANK|PMIX_RANK|PMI_RANK)=1$' "/proc/$pid/environ"; then victim=$pid; fi
    done
    [[ -n $victim ]] || fail "$way: there is no rank 1"
    kill -9 "$victim"
    status=0
    wait "$job" || status=$?
    [[ $status == 1 ]] || fail "$way: status $status after a rank was killed, not 1"
    if [[ $way == *ucx* ]] || grep -q "Open MPI" "$tmp/info"; then
        has "$tmp/err" "rank 1 was ended by signal 9 (Killed: out of memory?); the others"
    fi
done
