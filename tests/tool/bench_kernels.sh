# rill bench kernels: a table with goals, and complete records.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" bench kernels --reps 1 --json "$tmp/json"
has "$tmp/out" "ns/element" "goal" "memory bound" "add 2 x 20k" "sum 8 x 160k" "sum 64 x 160k" \
    "add dense + dense" set_dense get_dense
for key in kernel from type elements nnz_out median_s ns_per_element gb_per_s bound_s \
    ratio_to_bound isa commit; do
    [[ $(grep -c "\"$key\":" "$tmp/json") == $(wc -l <"$tmp/json") ]] || fail "no $key in records"
done
