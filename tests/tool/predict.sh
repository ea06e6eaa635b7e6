# rill predict and rill model: models say how data are prepared, figures, outputs, unknown labels.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" model --help
grep -oE -- '--[A-Za-z][A-Za-z0-9-]+' "$tmp/out" | sort -u | while read -r option; do
    grep -qE -- "Fl (h , )?-${option#--}( |\$)" "$root/man/rill-model.1" ||
        fail "$option is not in the manual of model"
done

awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { a = rand(); b = rand(); c = int(3 * rand())
    print (2 * a - b + c / 2 > 1 ? 1 : -1) " 1:" a " 2:" 100 * b " 7:" c } }' >"$tmp/data"

# Hashed and normalised: predict does the same unasked, and refuses what differs.
run 0 "$RILL" train "$tmp/data" --C 10 --hash 6 --seed 3 --normalize --model "$tmp/model" --quiet
run 0 "$RILL" predict "$tmp/data" --model "$tmp/model"
cp "$tmp/out" "$tmp/unasked"
least "$(number accuracy "$tmp/out")" 0.6 "accuracy"
least "$(number log_loss "$tmp/out")" 0.0001 "log loss"
run 0 "$RILL" predict "$tmp/data" --model "$tmp/model" --hash 6 --seed 3 --normalize --ranks 2
cmp -s "$tmp/out" "$tmp/unasked" || fail "flags that agree with the model change its figures"
run 2 "$RILL" predict "$tmp/data" --model "$tmp/model" --hash 7
has "$tmp/err" "--hash 7: the model was trained with --hash 6"
run 2 "$RILL" predict "$tmp/data" --model "$tmp/model" --seed 4
has "$tmp/err" "hashed with 3"
run 0 "$RILL" train "$tmp/data" --C 10 --scale max --model "$tmp/plain" --quiet
run 2 "$RILL" predict "$tmp/data" --model "$tmp/plain" --normalize
has "$tmp/err" "trained without"
run 2 "$RILL" predict "$tmp/data" --model "$tmp/plain" --hash 5
has "$tmp/err" "were not hashed"

# Indices from 0: the model knows it, so that a file without index 0 has the same features.
awk '{ sub(" 1:", " 0:"); sub(" 2:", " 1:"); sub(" 7:", " 2:"); print }' "$tmp/data" >"$tmp/zero"
sed 's/ 0:[^ ]*//' "$tmp/zero" >"$tmp/without"
sed 's/ 0:[^ ]*/ 0:0/' "$tmp/zero" >"$tmp/with"
run 0 "$RILL" train "$tmp/zero" --C 10 --valid "$tmp/without" --model "$tmp/from0"
grep -oE 'valid loss [0-9.]+ acc [0-9.]+' "$tmp/out" | tail -n 1 >"$tmp/got"
run 0 "$RILL" train "$tmp/zero" --C 10 --valid "$tmp/with" --model "$tmp/from0"
grep -oE 'valid loss [0-9.]+ acc [0-9.]+' "$tmp/out" | tail -n 1 | cmp - "$tmp/got" ||
    fail "--valid: features move where index 0 does not occur"
run 0 "$RILL" predict "$tmp/with" --model "$tmp/from0" --scores "$tmp/scores"
run 0 "$RILL" predict "$tmp/without" --model "$tmp/from0" --scores "$tmp/others"
cmp -s "$tmp/scores" "$tmp/others" || fail "features move where index 0 does not occur"
run 2 "$RILL" predict "$tmp/without" --model "$tmp/from0" --base 1
has "$tmp/err" "--base 1: indices of the model's data start at 0"
run 2 "$RILL" train "$tmp/zero" --init "$tmp/from0" --base 1
run 0 "$RILL" train "$tmp/without" --C 1 --init "$tmp/from0" --quiet
run 0 "$RILL" convert "$tmp/without" "$tmp/without.bin" --quiet
run 1 "$RILL" predict "$tmp/without.bin" --model "$tmp/from0"
has "$tmp/err" "its indices start at 1" "rill convert --base 0"
run 0 "$RILL" convert "$tmp/without" "$tmp/without.bin" --base 0 --quiet
run 0 "$RILL" predict "$tmp/without.bin" --model "$tmp/from0" --scores "$tmp/others"
cmp -s "$tmp/scores" "$tmp/others" || fail "features move in the binary form"
run 1 "$RILL" predict "$tmp/zero" --model "$tmp/plain"
has "$tmp/err" "index 0, but indices start at 1"
run 0 "$RILL" model "$tmp/from0" --top 1
has "$tmp/out" "indices       from 0"

# Many labels: all of them are named.
awk 'BEGIN { for (i = 0; i < 1200; i++) print 1000000 + i % 400 " " 1 + i % 400 ":1" }' \
    >"$tmp/many"
run 0 "$RILL" train "$tmp/many" --C 1 --epochs 2 --task classify --model "$tmp/wide" --quiet
run 0 "$RILL" predict "$tmp/many" --model "$tmp/wide" --probability -o "$tmp/labels"
awk 'NR == 1 { n = NF; bad = $NF != 1000399 } { bad = bad || NF != n }
    END { exit bad || n != 401 }' "$tmp/labels" ||
    fail "labels are missing in the first line of --probability"

# Labels of any size, and with fractions; whole numbers of which there are too many for classes.
sed 's/^1 /2000000000 /; s/^-1 /0.5 /' "$tmp/data" >"$tmp/odd"
run 0 "$RILL" train "$tmp/odd" --C 1 --model "$tmp/model2" --quiet
run 0 "$RILL" predict "$tmp/odd" --model "$tmp/model2" -o "$tmp/labels"
least "$(number accuracy "$tmp/out")" 0.6 "accuracy with odd labels"
grep -qx 2000000000 "$tmp/labels" && grep -qx 0.5 "$tmp/labels" || fail "odd labels are lost"
awk 'BEGIN { for (i = 0; i < 50000; i++) print 3 * (i % 5000) " 1:" i % 5000 " 2:1" }' >"$tmp/ints"
run 0 "$RILL" train "$tmp/ints" --C 1 --epochs 2
has "$tmp/out" "regress: loss squared"

# Rows by their length: as if they had been normalised, and the model knows it.
exact=(--C 10 --solver newton --tolerance 1e-7 --epochs 50 --quiet)
run 0 "$RILL" train "$tmp/data" --normalize "${exact[@]}" --model "$tmp/model2"
run 0 "$RILL" predict "$tmp/data" --model "$tmp/model2"
wanted=$(number log_loss "$tmp/out")
run 0 "$RILL" train "$tmp/data" --scale rows "${exact[@]}" --model "$tmp/model3"
run 0 "$RILL" predict "$tmp/data" --model "$tmp/model3"
awk -v a="$wanted" -v b="$(number log_loss "$tmp/out")" 'BEGIN { exit !((a - b) ^ 2 < 1e-8) }' ||
    fail "--scale rows is not --normalize: log loss $(number log_loss "$tmp/out"), not $wanted"
run 0 "$RILL" train "$tmp/data" --C 1 --init "$tmp/model3"
has "$tmp/out" "scale rows"
run 0 "$RILL" train "$tmp/data" --C 1 --init "$tmp/model3" --cv 2
run 1 "$RILL" train "$tmp/data" --C 1 --init "$tmp/model3" --scale max
has "$tmp/err" "the model's scale is rows, the training's max"

# Outputs: a line a row, to files or standard output, where figures make room.
run 0 "$RILL" predict "$tmp/data" --model "$tmp/plain" --scores "$tmp/scores" \
    --probabilities "$tmp/p" -o "$tmp/labels"
paste "$tmp/scores" "$tmp/p" "$tmp/labels" | awk '{ q = 1 / (1 + exp(-$1))
    if ((q - $2) ^ 2 + ($2 + $3 - 1) ^ 2 > 1e-12) bad = 1
    if (($1 > 0) != ($4 == 1)) bad = 1; n++ } END { exit bad || n != 300 }' ||
    fail "scores, probabilities and labels differ"
run 0 "$RILL" predict "$tmp/data" --model "$tmp/plain" --scores -
cmp -s "$tmp/out" "$tmp/scores" || fail "--scores - is not what --scores FILE has"
has "$tmp/err" "accuracy" "log_loss" "auc"
run 1 "$RILL" predict "$tmp/data" --model "$tmp/plain" --scores /nowhere/x
has "$tmp/err" "/nowhere/x: cannot be written"

# Labels that the model does not know.
sed '1,5s/^[^ ]*/9/' "$tmp/data" >"$tmp/strange"
run 0 "$RILL" predict "$tmp/strange" --model "$tmp/plain"
has "$tmp/out" "note: 5 rows have labels that the model does not know, such as 9"

# Regression.
sed 's/^[^ ]* 1:\([^ ]*\)/\1e2 1:\1/' "$tmp/data" >"$tmp/numbers"
run 0 "$RILL" train "$tmp/numbers" --model "$tmp/line" --quiet
run 0 "$RILL" predict "$tmp/numbers" --model "$tmp/line"
least "$(number r2 "$tmp/out")" 0.999 "R2 of a line"
least 1 "$(number rmse "$tmp/out")" "error of a line"
run 1 "$RILL" predict "$tmp/numbers" --model "$tmp/line" --probabilities "$tmp/p"
has "$tmp/err" "probabilities need a model of logistic regression"

# What is in a model; LIBLINEAR's models know nothing of their making.
printf 'length\nwidth\n' >"$tmp/names"
run 0 "$RILL" model "$tmp/plain" --names "$tmp/names" --top 2
has "$tmp/out" "labels        1 -1" "features      7" "scale         max" "intercept" \
    "loss          logistic" "trained on    300 rows" "largest weights, for label 1:" "length"
run 0 "$RILL" model "$tmp/model" --top 0
has "$tmp/out" "hash          6 bits, seed 3" "normalize     yes"
sed '/^# rill/,$d' "$tmp/plain" >"$tmp/liblinear"
run 0 "$RILL" model "$tmp/liblinear"
has "$tmp/out" "made          unknown"
run 0 "$RILL" predict "$tmp/data" --model "$tmp/liblinear" --normalize
sed 's/^normalize .*/normalize maybe/' "$tmp/plain" >"$tmp/bad"
run 1 "$RILL" model "$tmp/bad"
has "$tmp/err" "not a setting of a model"
run 1 "$RILL" model "$tmp/nowhere"
run 1 "$RILL" model "$tmp/plain" --names "$tmp/nowhere"
run 2 "$RILL" model
run 2 "$RILL" model "$tmp/plain" --top x
