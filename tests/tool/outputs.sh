# Outputs: a full disk is an error with the file's name, and what was there stays; devices and FIFOs
# are written into, links followed, rights kept; a full standard output is an error too.
. "$(dirname "$0")/common.bash"
not_simulated
export RILL_PROFILE=none

awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) { s = 0; line = ""
    for (j = 1; j <= 60; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v / 4; s += (j % 3 - 1) * v }
    print (s > 0 ? "+1" : "-1") line } }' >"$tmp/data"
run 0 "$RILL" train "$tmp/data" --epochs 2 --quiet --model "$tmp/model" --log "$tmp/log"

# Each output of the tool, as a command whose last word is missing: the file.
outputs=(
    "gen url --samples 200 --quiet -o"
    "convert $tmp/data --quiet --to text"
    "train $tmp/data --epochs 2 --quiet --model"
    "train $tmp/data --epochs 2 --quiet --log"
    "train $tmp/data --epochs 1 --quiet --checkpoint"
    "predict $tmp/data --model $tmp/model --output"
    "report $tmp/log --quiet -o"
    "bench --dim 64 --reps 1 --warmup 0 --algorithm ring --quiet --json"
)
slower=( # the same code underneath
    "bench reducer --ranks 2 --dim 256 --steps 1 --no-baseline --algorithm gtopk --quiet --json"
    "bench overlap --ranks 2 --dim 256 --nnz 16 --reps 1 --algorithm ring --quiet --json"
    "tune --ranks 2 --seconds 1 --profile"
)
into() { # into STATUS FILE COMMAND: a command of the list with its file (convert wants it second)
    local status=$1 file=$2 words
    read -ra words <<<"$3"
    if [[ ${words[0]} == convert ]]; then
        words=("${words[@]:0:2}" "$file" "${words[@]:2}")
    else
        words+=("$file")
    fi
    run "$status" timeout 60 "$RILL" "${words[@]}"
}
refused() { # refused FILE COMMAND: an error that names the file
    into 1 "$1" "$2"
    has "$tmp/err" "$1"
}

# A node of our own: /dev/full itself must not be at risk from what is tested here.
full=$tmp/full
is_full() { [[ -c $1 && $({ echo x >"$1"; } 2>&1) == *"No space left"* ]]; }
mknod "$full" c 1 7 2>/dev/null || full=/dev/full
if [[ $full == /dev/full && $(id -u) == 0 ]]; then full=$tmp/none; fi # only root could replace it
if is_full "$full"; then
    for command in "${outputs[@]}" "${slower[@]}"; do
        refused "$full" "$command"
        has "$tmp/err" "No space left on device"
        [[ -c $full ]] || fail "the device was replaced: $command"
    done
    # Standard output, by one process and behind a launcher.
    for command in info "plan --ranks 4" --help --version "bench --help" \
        "gen url --samples 50 --quiet" "convert $tmp/data - --quiet --to text" \
        "train $tmp/data --epochs 1" "train $tmp/data --epochs 1 --ranks 2" \
        "train $tmp/data --epochs 1 --quiet --model -" "predict $tmp/data --model $tmp/model" \
        "report $tmp/log -o -" "bench --dim 64 --reps 1 --warmup 0 --algorithm ring" \
        "bench --dim 64 --reps 1 --warmup 0 --algorithm ring --json -"; do
        status=0
        # shellcheck disable=SC2086
        timeout 60 "$RILL" $command >"$full" 2>"$tmp/err" || status=$?
        [[ $status == 1 ]] || fail "status $status, not 1, with a full standard output: $command"
        grep -qE "standard output|'-'" "$tmp/err" ||
            fail "no message about standard output: $command: $(cat "$tmp/err")"
    done
    rm -f "$tmp/full"
else
    echo "skipped: no device that is full can be made"
fi

# The disk is full, or fills: a limit on the size of files needs no rights. It binds the launcher's
# files too, so it is for commands without one.
printf old >"$tmp/old"
limited() { (trap '' XFSZ && ulimit -f 1 && exec "$@"); }
for command in "gen url --samples 200 --quiet -o $tmp/old" "convert $tmp/data $tmp/old --quiet" \
    "report $tmp/log --quiet -o $tmp/old"; do
    # shellcheck disable=SC2086
    run 1 limited "$RILL" $command
    has "$tmp/err" "$tmp/old" "File too large"
    [[ $(cat "$tmp/old") == old && ! -e $tmp/old.partial ]] ||
        fail "what was there did not stay: $command"
done
if [[ $(id -u) == 0 ]] && mkdir "$tmp/disk" &&
    mount -t tmpfs -o size=64k tmpfs "$tmp/disk" 2>/dev/null; then
    trap 'umount "$tmp/disk"; rm -rf "$tmp"' EXIT
    printf old >"$tmp/disk/old"
    cat /dev/zero >"$tmp/disk/rest" 2>/dev/null || true
    sparse="--ranks 2 --reducer oktopk --density 0.2"
    for command in "${outputs[@]}" "train $tmp/data --epochs 2 --quiet $sparse --checkpoint"; do
        refused "$tmp/disk/old" "$command"
        has "$tmp/err" "No space left on device"
        [[ $(cat "$tmp/disk/old") == old ]] || fail "what was there did not stay: $command"
        [[ $(find "$tmp/disk" -type f | wc -l) == 2 ]] ||
            fail "something is left: $command: $(ls "$tmp/disk")"
    done
    # It fills while a log grows: whole lines stay.
    rm "$tmp/disk/rest"
    into 1 "$tmp/disk/log" "train $tmp/data --solver sgd --C 1 --epochs 1000 --quiet --log"
    has "$tmp/err" "$tmp/disk/log" "No space left on device"
    [[ $(tail -c 1 "$tmp/disk/log" | wc -l) == 1 ]] || fail "the log ends within a line"
    run 0 "$RILL" report "$tmp/disk/log" --quiet -o "$tmp/page"
else
    echo "skipped: no small disk can be mounted"
fi

# A FIFO, a link, rights.
for command in "${outputs[@]}"; do
    rm -rf "$tmp/in" && mkdir "$tmp/in"
    mkfifo "$tmp/in/fifo"
    timeout 60 cat "$tmp/in/fifo" >"$tmp/got" &
    into 0 "$tmp/in/fifo" "$command"
    wait $!
    [[ -p $tmp/in/fifo ]] || fail "the FIFO was replaced: $command"
    [[ -s $tmp/got ]] || fail "nothing went through the FIFO: $command"

    printf old >"$tmp/in/real"
    chmod 640 "$tmp/in/real"
    ln -s real "$tmp/in/link"
    ln -s "$tmp/in/later" "$tmp/in/dangling"
    into 0 "$tmp/in/link" "$command"
    into 0 "$tmp/in/dangling" "$command"
    [[ -L $tmp/in/link && -L $tmp/in/dangling ]] || fail "a link was replaced: $command"
    [[ -s $tmp/in/later && $(head -c 3 "$tmp/in/real") != old ]] ||
        fail "a link was not followed: $command"
    [[ $(stat -c %a "$tmp/in/real") == 640 ]] || fail "the rights have changed: $command"
    [[ $(find "$tmp/in" | wc -l) == 6 ]] || fail "something is left: $command: $(ls "$tmp/in")"
done
# It waits for its reader.
run 1 "$RILL" gen url --samples 20 --format binary -o "$tmp/in/fifo" --quiet &
cat "$tmp/in/fifo" >/dev/null
wait $! || fail "the binary form went into a FIFO"

# Data that comes after an output of the same name, through /dev/stdout, stays.
"$RILL" gen url --samples 5 --quiet >"$tmp/five"
("$RILL" gen url --samples 5 --quiet -o /dev/stdout && echo more) | cat >"$tmp/got"
{ cat "$tmp/five" && echo more; } | cmp - "$tmp/got" || fail "/dev/stdout"

# Two at once do not mix, and what a killed one has left does not matter.
printf rubbish >"$tmp/twice.partial"
for _ in 1 2 3 4; do "$RILL" gen url --samples 2000 --quiet -o "$tmp/twice" & done
wait
run 0 "$RILL" gen url --samples 2000 --quiet -o "$tmp/once"
cmp "$tmp/once" "$tmp/twice" || fail "two writers mixed"
[[ ! -e $tmp/twice.partial ]] || fail "a partial file is left"

# A closed standard stream leaves its number to no file: what is printed does not get into one.
status=0
"$RILL" bench --link local --dim 64 --reps 1 --warmup 0 --algorithm ring --json "$tmp/closed" \
    >&- 2>"$tmp/err" || status=$?
[[ $status == 1 ]] || fail "status $status, not 1, with standard output closed"
has "$tmp/err" "standard output: cannot be written"
if grep -v '^{' "$tmp/closed"; then fail "what was printed is among the records"; fi
status=0
"$RILL" train "$tmp/data" --epochs 1 --C 0 --log "$tmp/none" 2>&- || status=$?
[[ $status == 2 ]] || fail "status $status, not 2, with standard error closed"
for option in --output --scores; do
    status=0
    "$RILL" predict "$tmp/data" --model "$tmp/model" $option - >&- 2>"$tmp/err" || status=$?
    [[ $status == 1 ]] || fail "status $status, not 1: predict $option - with it closed"
done
