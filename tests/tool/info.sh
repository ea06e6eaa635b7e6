# rill info, as text and as JSON.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" info
has "$tmp/out" "MPI library" "instruction set" "f32 f64 f16 bf16" "sum min max prod" \
    "Algorithms of allreduce" "Algorithms of bcast" "Codecs:" "Selections:" "Losses:" "Solvers:" \
    RILL_ALGORITHM
for name in dense recursive_double split_allgather dsar ring allgather hier raw topk logistic \
    newton; do
    grep -qE "^  $name +[A-Za-z]" "$tmp/out" || fail "no $name with a description"
done
run 0 env RILL_CUDA_LIBRARY=no-such.so "$RILL" info
has "$tmp/out" "CUDA devices       none (memory is RILL_CUDA, and no-such.so could not be loaded"
emulated=$(dirname "$RILL")/../tests/cuda/librill_cuda_emulated.so
if [[ -f $emulated ]]; then
    run 0 env RILL_CUDA_LIBRARY="$emulated" "$RILL" info
    has "$tmp/out" "CUDA devices       emulated on the host, compute capability 0.0, 2 multi"
    run 0 env RILL_CUDA_LIBRARY="$emulated" "$RILL" info --json
    has "$tmp/out" '"emulated on the host'
fi
run 0 env RILL_ALGORITHM=ring "$RILL" info
has "$tmp/out" "[now: ring]"
if grep -q "No communicator" "$tmp/out"; then fail "ring is taken for a wrong setting"; fi
# What is wrong with a variable is said, and the rest as well.
run 0 env RILL_ISA=foo "$RILL" info
has "$tmp/out" "[now: foo]" "setting isa = 'foo' is none of scalar, avx2, avx512."
run 0 env RILL_CHECK=7 "$RILL" info
has "$tmp/out" "setting check = 7 is neither 0 nor 1."

# The settings; docs.sh holds the reference against them.
run 0 "$RILL" info --settings
has "$tmp/out" "Set by rill_options, rill_reducer_options, MPI_Info rill_algorithm, RILL_ALGORITHM."
run 2 "$RILL" info --settings --json

run 0 "$RILL" info --json
has "$tmp/out" '"version"' '"allreduce"' '"codecs"' '"isa"' '"devices"'
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
info = json.load(open(sys.argv[1]))
assert {a["name"] for a in info["algorithms"]["allreduce"]} >= {"dense", "ring", "dsar"}, info
rows = info["algorithms"]["allreduce"] + info["settings"]
for table in ("codecs", "selections", "losses", "solvers"):
    assert info[table], table
    rows += info[table]
assert all(row["description"] for row in rows), rows
assert {s["environment"] for s in info["settings"]} - {None} < set(info["environment"])' \
        "$tmp/out" || fail "the JSON is not as expected"
fi
