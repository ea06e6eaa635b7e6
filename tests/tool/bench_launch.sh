# rill bench under a launcher of the user's, and with one of the user's choice.
. "$(dirname "$0")/common.bash"
not_simulated

launch=("$root/scripts/mpirun-test" 3)
run 0 "${launch[@]}" "$RILL" bench --dim 5000 --reps 2 --algorithm auto --json "$tmp/json"
all_correct "$tmp/json"
[[ $(grep -c '3 ranks on 1 host' "$tmp/out") == 1 ]] || fail "more than one rank speaks"

run 0 "${launch[@]}" "$RILL" info
[[ $(grep -c '^MPI library' "$tmp/out") == 1 ]] || fail "more than one rank speaks"

run 2 "${launch[@]}" "$RILL" bench --ranks 2 --dim 5000
[[ $(grep -c -- '--ranks: 2 were asked for, the launcher started 3' "$tmp/err") == 1 ]] ||
    fail "no message, or more than one"
run 2 "${launch[@]}" "$RILL" bench --dim x
[[ $(grep -c -- "--dim: 'x' is not" "$tmp/err") == 1 ]] || fail "no message, or more than one"

cat >"$tmp/launcher" <<END
#!/bin/sh
echo "\$@" >"$tmp/words"
shift 3
exec "$root/scripts/mpirun-test" 2 "\$@"
END
chmod +x "$tmp/launcher"
run 0 env RILL_MPIRUN="$tmp/launcher --mine" "$RILL" bench --ranks 2 --dim 5000 --reps 1 --quiet
has "$tmp/words" "--mine -n 2 " "bench --ranks 2 --dim 5000"
