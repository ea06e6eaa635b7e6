# rill bench kernels: tables with goals, and complete records.
. "$(dirname "$0")/common.bash"
not_simulated

# keys KEY...: every record has each.
keys() {
    local key
    [[ -s $tmp/json ]] || fail "no records"
    for key; do
        [[ $(grep -c "\"$key\":" "$tmp/json") == $(wc -l <"$tmp/json") ]] ||
            fail "no $key in records"
    done
}

run 0 "$RILL" bench kernels --group sums --reps 1 --json "$tmp/json"
has "$tmp/out" "ns/element" "goal" "memory bound" "add 2 x 20k" "sum 8 x 160k" "sum 64 x 160k" \
    "add dense + dense" set_dense get_dense
if grep -q "topk\|bitpack" "$tmp/out"; then fail "--group sums runs other groups"; fi
keys group kernel from type elements nnz_out median_s ns_per_element gb_per_s bound_s \
    ratio_to_bound isa commit

run 0 "$RILL" bench kernels --group select --reps 1 --json "$tmp/json"
has "$tmp/out" "read pass" "goal" topk threshold bucket block random "fused threshold, known" \
    "fused topk" nth_element heavy constant zeros
keys group kernel data share type nnz_out median_s min_s read_pass_s read_passes bound_s \
    ratio_to_bound goals isa commit
all_correct "$tmp/json"

run 0 "$RILL" bench kernels --group select --reps 1 --type bf16 --json "$tmp/json"
all_correct "$tmp/json"

run 0 "$RILL" bench kernels --group codecs --reps 1 --json "$tmp/json"
has "$tmp/out" entropy excess "encode G/s" "decode G/s" bitpack elias_fano bitmap "qsgd quantize" \
    "qsgd dequantize-add"
keys group kernel from elements goals coded_bytes isa commit
all_correct "$tmp/json"

emulated=$(dirname "$RILL")/../tests/cuda/librill_cuda_emulated.so
if [[ -f $emulated ]]; then
    run 0 env RILL_CUDA_LIBRARY="$emulated" "$RILL" bench kernels --memory cuda --dim 5000 \
        --reps 1 --json "$tmp/json"
    has "$tmp/out" "emulated on the host" "fused topk"
    [[ $(grep -c '"correct":true' "$tmp/json") == 10 ]] || fail "not all are as on the host"
fi
run 1 env RILL_CUDA_LIBRARY=no-such.so "$RILL" bench kernels --memory cuda
has "$tmp/err" "no-such.so could not be loaded"
run 1 env RILL_ISA=foo "$RILL" bench kernels --group sums --reps 1
has "$tmp/err" "setting isa = 'foo' is none of scalar, avx2, avx512"
run 2 "$RILL" bench kernels --memory disk
has "$tmp/err" "--memory: unknown 'disk' (host, cuda)"
run 2 "$RILL" bench kernels --dim 5000
has "$tmp/err" "--dim: only with --memory cuda"
run 2 "$RILL" bench kernels --memory cuda --group sums
has "$tmp/err" "--group: not with --memory cuda"
run 2 "$RILL" bench kernels --group nonsense
has "$tmp/err" "--group: unknown 'nonsense' (sums, select, codecs, all)"
