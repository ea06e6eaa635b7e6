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
has "$tmp/err" "usage: bench/cuda/run"
run 2 "$bench/cuda/run" "$tmp/none" "$tmp/gpu" --parts test,fast
has "$tmp/err" "unknown 'fast'"
run 2 "$bench/cuda/run" "$tmp/none" "$tmp/gpu" --parts test
has "$tmp/err" "there is no"

# The parts of bench/cuda/run with programs that only say something: what fails is told, and so are
# goals that are missed; without a GPU all is skipped.
fake=$tmp/fake
mkdir -p "$fake"/{bin,lib,tests/cuda}
touch "$fake/lib/librill_cuda.so"
program() { # NAME STATUS LINE
    printf '#!/bin/sh\necho %s\nexit %s\n' "'$3'" "$2" >"$fake/$1"
    chmod +x "$fake/$1"
}
program tests/cuda/test_cuda 0 "5 passed, 0 failed"
program tests/cuda/test_reducer_cuda 0 "7 passed, 0 failed"
program bin/bench_cuda 0 '{"kernel": "topk", "data": "gauss", "k": 9, "met": true}'
mkdir "$tmp/torch" # one that has no device
echo 'cuda = type("", (), {"is_available": staticmethod(lambda: False)})' >"$tmp/torch/__init__.py"
run 0 env PYTHONPATH="$tmp" "$bench/cuda/run" "$fake" "$tmp/gpu" --parts test,bench,tool
has "$tmp/out" "test ok; reducers ok; bench ok; peers skipped; tool skipped; 1 of 1 goals"
has "$tmp/gpu/test.log" "5 passed" "7 passed"
program tests/cuda/test_reducer_cuda 1 "6 passed, 1 failed"
run 1 "$bench/cuda/run" "$fake" "$tmp/gpu" --parts test
has "$tmp/out" "test ok; reducers FAILED (1)"
program tests/cuda/test_reducer_cuda 0 "7 passed, 0 failed"
run 0 "$bench/cuda/run" "$fake" "$tmp/gpu" --parts test --seconds 0
has "$tmp/out" "test cut off; reducers cut off"

# Sanitizers: each case is a program of its own; what fails is told by its log, what has no verdict
# as well.
mkdir "$tmp/sanitizer"
cat >"$tmp/sanitizer/compute-sanitizer" <<'END'
#!/bin/sh
case $* in
*"$FAILING") echo "Invalid read of 4 bytes" && exit 1 ;;
*"$SLOW") sleep 60 ;;
esac
[ "$RILL_TEST_FEW" = 1 ] && exit 0
END
chmod +x "$tmp/sanitizer/compute-sanitizer"
sanitize() { # STATUS FAILING SLOW SECONDS
    run "$1" env PATH="$tmp/sanitizer:$PATH" FAILING="$2" SLOW="$3" \
        "$bench/cuda/run" "$fake" "$tmp/gpu" --parts sanitizers --seconds "$4"
}
sanitize 0 none none 100
has "$tmp/out" "memcheck (13 of 13) ok; racecheck (8 of 8) ok; initcheck (8 of 8) ok" \
    "memcheck of test_reducer_cuda streams: ok" "memcheck of test_reducer_cuda held: ok" \
    "racecheck of test_cuda sketch: ok" "initcheck of test_cuda dense: ok"
sanitize 1 streams none 100
has "$tmp/out" "Invalid read of 4 bytes" "memcheck of test_reducer_cuda streams: FAILED" \
    "memcheck (13 of 13) FAILED (1); racecheck (8 of 8) ok"
sanitize 0 none held 4
has "$tmp/out" "memcheck of test_reducer_cuda held: cut off" "memcheck (12 of 13) cut off"
program tests/cuda/test_cuda 77 "skipped: there is no GPU"
run 0 "$bench/cuda/run" "$fake" "$tmp/gpu" --parts test,bench
has "$tmp/out" "skipped: there is no GPU"
if [[ ! -e /dev/nvidia0 && ! -e /dev/dxg ]]; then
    run 0 make -s -C "$root" BUILD="$tmp/new" test-cuda
    has "$tmp/out" "skipped: there is no GPU"
    [[ ! -e $tmp/new ]] || fail "make test-cuda built something for no GPU"
fi

# Tables of the committed records.
run 0 "$bench/volume_table" "$bench/results/volume.jsonl"
has "$tmp/out" "| gtopk | 2 | 4,096 | 4,096 | 1.00 |"
