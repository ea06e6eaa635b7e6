# rill plan and rill tune.
. "$(dirname "$0")/common.bash"
not_simulated
unset RILL_PROFILE
export XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp/cache

run 0 "$RILL" plan --ranks 8 --dim 2^24 --density 0.781% --rate 1gbit
has "$tmp/out" "allreduce of 131,030 of 16,777,216 f32" dense recursive_double elias_fano \
    "what 'auto' takes"
[[ $(grep -c '^\* [a-z]' "$tmp/out") == 2 ]] || fail "not one choice (and the note)"
# MPI's dense sum where nothing is sparse, and not where all is.
run 0 "$RILL" plan --ranks 2 --hosts 1 --dim 2^24 --density 100%
grep -q '^\* dense' "$tmp/out" || fail "a dense vector is not summed by MPI"
run 0 "$RILL" plan --ranks 8 --dim 2^20 --density 0.1% --rate 1gbit --json
python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
rows = {r["algorithm"]: r for r in plan["algorithms"]}
chosen = [r for r in rows.values() if r.get("chosen")]
least = min(r["predicted_s"] for r in rows.values() if "refuses" not in r)
assert len(chosen) == 1 and chosen[0]["predicted_s"] == least, rows
assert rows["dense"]["predicted_s"] > 20 * chosen[0]["predicted_s"], rows
assert "refuses" in rows["block"], rows' "$tmp/out" || fail "the JSON is not as expected"
run 0 "$RILL" plan --collective reducer --rate 1gbit
has "$tmp/out" gtopk oktopk spardl s2
run 0 "$RILL" plan --allow-bits 4 --rate 100mbit --density 5%
grep -qE '^\* .* 4 ' "$tmp/out" || fail "bits that are allowed and pay are not chosen"

for bad in "--ranks 0" "--rate 5" "--type f8" "--density 2" "--dim 0" "--collective sum" \
    "--latency x" "word"; do
    # shellcheck disable=SC2086 # an option and its value
    run 2 "$RILL" plan $bad
done
run 2 "$RILL" plan --ranks 2 --hosts 3
has "$tmp/err" "--hosts: 3 are more than the 2 ranks"
run 2 "$RILL" plan --codec zip
has "$tmp/err" "--codec: 'zip' is not"
run 1 "$RILL" plan --profile "$tmp/none"
has "$tmp/err" "$tmp/none"

# What tune writes is found by the next run, by its name and in the user's folder.
run 0 "$RILL" tune --ranks 2 --seconds 1
has "$tmp/out" "2 ranks" "config/rill/profile"
[[ -s $tmp/config/rill/profile ]] || fail "no profile was written"
run 0 "$RILL" tune --ranks 3 --seconds 1 --profile "$tmp/config/rill/profile"
[[ $(grep -c '^entry' "$tmp/config/rill/profile") == 2 ]] || fail "the profile has not two entries"
run 0 "$RILL" plan --ranks 2 --hosts 1 --json
cp "$tmp/out" "$tmp/found"
run 0 env RILL_PROFILE="$tmp/config/rill/profile" "$RILL" plan --ranks 2 --hosts 1 --json
cmp -s "$tmp/out" "$tmp/found" || fail "the profile in the user's folder was not found"
run 0 "$RILL" plan --ranks 2 --hosts 1 --json --profile none
if cmp -s "$tmp/out" "$tmp/found"; then fail "the profile changes nothing"; fi
run 0 "$RILL" bench --ranks 2 --dim 2^12 --density 1% --algorithm auto --reps 3 --quiet \
    --json "$tmp/bench"
all_correct "$tmp/bench"

echo "nonsense" >"$tmp/config/rill/profile"
run 1 "$RILL" bench --ranks 2 --dim 2^12 --algorithm auto --reps 3
has "$tmp/err" "config/rill/profile:1: this is not a profile"
run 2 "$RILL" tune --ranks 1
run 2 "$RILL" tune --seconds 0

# What calls have shown is kept, shown and forgotten.
rm "$tmp/config/rill/profile"
run 1 "$RILL" plan --learned
has "$tmp/err" "nothing has been learned with link mpi" "cache/rill"
some=(--ranks 2 --density 1% --quiet)
run 0 "$RILL" bench "${some[@]}" --dim 2^12 --algorithm auto --reps 20
run 1 "$RILL" plan --learned # nobody has asked for it
export RILL_LEARN=auto
run 0 "$RILL" bench "${some[@]}" --dim 2^12,2^16 --algorithm auto,ring,dense --reps 20
run 0 "$RILL" plan --learned
has "$tmp/out" "Learned on 2 ranks, 1 host" "to the model" "4,096" \
    "on 2 ranks, 1 host" "'auto' takes"
run 0 "$RILL" plan --learned --json --dim 2^16
python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
learned = plan["learned"]
assert plan["ranks"] == 2 and plan["hosts"] == 1 and learned["points"] >= 2, plan
assert len(learned["calls"]) == learned["points"], plan
assert all(c["dim"] > 0 and c["nnz"] > 0 and c["ratio"] > 0 for c in learned["calls"]), plan
constants = learned["constants"]
assert len(constants) == 18 and all(v > 0 for v in constants.values()), plan' "$tmp/out" ||
    fail "the JSON is not as expected"
run 2 "$RILL" plan --learned --profile none
run 1 "$RILL" plan --learned --link local
for file in "$tmp"/cache/rill/learned-mpi-1-*; do echo "nonsense" >"$file"; done
run 1 "$RILL" plan --learned
has "$tmp/err" "nothing that was learned"
run 0 "$RILL" bench "${some[@]}" --dim 2^12 --algorithm auto --reps 5
run 0 env RILL_LEARN=off "$RILL" bench "${some[@]}" --dim 2^12 --algorithm auto --reps 3
run 1 env RILL_LEARN=maybe "$RILL" bench "${some[@]}" --dim 2^12 --algorithm auto --reps 3
has "$tmp/err" "maybe"

# Of a reducer on GPUs: where messages are summed.
run 0 "$RILL" plan --ranks 2 --hosts 1 --dim 44e6 --profile none --memory cuda
has "$tmp/out" "sums in"
run 0 "$RILL" plan --ranks 2 --hosts 1 --dim 44e6 --profile none --memory cuda --json
has "$tmp/out" '"summed_in": "cuda"'
