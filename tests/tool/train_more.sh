# rill train: Huber's loss, weights of rows, cross-validation, a model to start from, ftrl, queries,
# probabilities for support vector machines.
. "$(dirname "$0")/common.bash"
not_simulated

awk 'BEGIN { srand(7); for (i = 0; i < 900; i++) { s = 0; line = ""
    for (j = 1; j <= 60; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s + 12 * rand() - 6 > 0 ? "+1" : "-1") line } }' >"$tmp/data"
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { x = rand(); y = rand()
    print 100 + 3 * x - y + 0.01 * rand() + (i % 20 == 0 ? 1000 : 0) " 1:" x " 2:" y } }' \
    >"$tmp/numbers"
objective() { grep -oE 'objective [0-9.e+]+' "$tmp/out" | tail -n 1 | cut -d' ' -f2; }
same() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a / b > 0.999999 && a / b < 1.000001) }'; }
exact=(--C 1 --scale none --solver newton --tolerance 1e-7 --epochs 50)

# Huber: outliers in every twentieth row do not matter; the distance may be given.
run 0 "$RILL" train "$tmp/numbers" --loss huber --model "$tmp/model"
has "$tmp/out" "regress: loss huber, intercept"
run 0 "$RILL" model "$tmp/model"
has "$tmp/out" "loss          huber, distance "
slope=$(awk '$1 == 1 && NF == 2 { print $2 }' "$tmp/out")
awk -v s="$slope" 'BEGIN { exit !(s > 2.8 && s < 3.1) }' || fail "Huber's slope is $slope, not 3"
run 0 "$RILL" train "$tmp/numbers" --loss huber --huber-delta 1e6 "${exact[@]}"
wide=$(objective)
run 0 "$RILL" train "$tmp/numbers" --loss squared "${exact[@]}"
same "$wide" "$(objective)" ||
    fail "Huber of a large distance is not least squares: $wide"
run 2 "$RILL" train "$tmp/numbers" --loss squared --huber-delta 1
has "$tmp/err" "--huber-delta needs --loss huber"

# Features that say nothing are left to the intercept; whole numbers are taken as numbers.
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { line = rand() < 0.5 ? "+1" : "-1"
    for (j = 1; j <= 8; j++) line = line " " j ":" rand() - 0.5
    print line } }' >"$tmp/noise"
run 0 "$RILL" train "$tmp/noise"
C=$(grep -oE '^C = [0-9.e-]+' "$tmp/out" | cut -d' ' -f3)
awk -v C="$C" 'BEGIN { exit !(C < 0.01) }' || fail "C = $C where features say nothing"
awk 'BEGIN { srand(5); for (i = 0; i < 800; i++) { x = rand() + rand() + rand(); y = rand()
    print int(30 * x + 5 * y) " 1:" x " 2:" y } }' >"$tmp/whole"
run 0 "$RILL" train "$tmp/whole"
has "$tmp/out" "labels are taken as numbers; --task classify takes them for classes"

# Weights: 0 leaves a row out, 2 is the row twice; on two ranks, too; errors name file and line.
awk '{ print (NR % 2 ? 2 : 0) }' "$tmp/data" >"$tmp/weights"
awk 'NR % 2 { print; print }' "$tmp/data" >"$tmp/twice"
run 0 "$RILL" train "$tmp/twice" "${exact[@]}"
wanted=$(objective)
for ranks in 1 2; do
    run 0 "$RILL" train "$tmp/data" "${exact[@]}" --weights "$tmp/weights" --ranks $ranks
    same "$(objective)" "$wanted" ||
        fail "weights are not as many rows: $(objective), not $wanted, on $ranks ranks"
done
head -n 5 "$tmp/weights" >"$tmp/short"
run 1 "$RILL" train "$tmp/data" --weights "$tmp/short"
has "$tmp/err" "short: has 5 weights, the data have 900 rows"
sed '7s/.*/-1/' "$tmp/weights" >"$tmp/bad"
run 1 "$RILL" train "$tmp/data" --weights "$tmp/bad"
has "$tmp/err" "bad: the weight of row 7 is -1"
sed '8s/.*/much/' "$tmp/weights" >"$tmp/bad"
run 1 "$RILL" train "$tmp/data" --weights "$tmp/bad"
has "$tmp/err" "bad:8:" "much"
run 1 "$RILL" train "$tmp/data" --weights "$tmp/none"
has "$tmp/err" "none"

# Weights that leave nothing; a bias of which the square is 0.
sed 's/.*/0/' "$tmp/weights" >"$tmp/zeros"
for solver in scd newton; do
    run 1 "$RILL" train "$tmp/data" --C 1 --solver $solver --weights "$tmp/zeros"
    has "$tmp/err" "the weights of all rows are 0"
done
run 0 "$RILL" train "$tmp/data" --C 1 --solver scd --epochs 1 --bias 1e-30

# Cross-validation: all parts, mean and deviation; the same on two ranks; no model unless asked for.
run 0 "$RILL" train "$tmp/data" --cv 4 --C 1 --scale max
has "$tmp/out" "fold 4 of 4" "4 folds, mean and standard deviation:  loss 0." " +- "
if grep -q "^done" "$tmp/out"; then fail "--cv trains a model that nobody wants"; fi
grep cross-validation "$tmp/out" >"$tmp/want"
awk '/^fold/ { n++; s += $9 / 4 }
    /^cross/ { exit !(n == 4 && s - $9 < 1e-4 && $9 - s < 1e-4) }' \
    "$tmp/out" || fail "the mean is not that of the folds"
run 0 "$RILL" train "$tmp/data" --cv 4 --C 1 --scale max --ranks 2 --model "$tmp/model"
grep cross-validation "$tmp/out" | cmp - "$tmp/want" || fail "two ranks have other folds"
has "$tmp/out" "done  objective"
run 2 "$RILL" train "$tmp/data" --cv 1
has "$tmp/err" "--cv: '1' is not a number of parts from 2 to 1000"
run 2 "$RILL" train "$tmp/data" --cv 4 --valid 0.2
run 2 "$RILL" train "$tmp/data" --cv 4 --checkpoint "$tmp/c" --resume
# Rows of a query stay together: one query in all rows leaves nothing to train on, or to test.
sed 's/ / qid:4 /' "$tmp/data" >"$tmp/query"
run 0 "$RILL" train "$tmp/query" --C 1 --epochs 1
has "$tmp/out" "900 rows have a query"
run 1 "$RILL" train "$tmp/query" --C 1 --cv 2
grep -qE "no rows (to train on|for validation)" "$tmp/err" || fail "a query was cut"

# A model to start from: its objective is where it left off; labels and features are checked.
run 0 "$RILL" train "$tmp/data" "${exact[@]}" --model "$tmp/model"
wanted=$(objective)
for way in "newton" "hybrid" "sgd --lr 1e-9" "ftrl --lr 1e-9 --ranks 2"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/data" --C 1 --scale none --epochs 1 --init "$tmp/model" --solver $way
    awk -v a="$(objective)" -v b="$wanted" 'BEGIN { exit !(a / b < 1.001) }' ||
        fail "--init with $way: $(objective), not $wanted"
done
awk '{ print ($1 > 0 ? 7 : 8), $2 }' "$tmp/data" >"$tmp/other"
run 1 "$RILL" train "$tmp/other" --C 1 --init "$tmp/model"
has "$tmp/err" "the model does not know the label 8"
run 1 "$RILL" train "$tmp/numbers" --C 1 --init "$tmp/model"
has "$tmp/err" "the model is one of classes, the training one of regression"
run 2 "$RILL" train "$tmp/data" --hash 4 --init "$tmp/model"
has "$tmp/err" "--hash 4: the model of --init"
run 1 "$RILL" train "$tmp/data" --init "$tmp/none"

# ftrl: near the optimum; l1 makes zeros; a run that is resumed ends in the same bits.
run 0 "$RILL" train "$tmp/data" --C 1 --solver ftrl --epochs 20
awk -v a="$(objective)" -v b="$wanted" 'BEGIN { exit !(a / b < 1.06) }' ||
    fail "ftrl is far from the optimum: $(objective), not $wanted"
ftrl=(--C 1 --l1 20 --solver ftrl --ranks 2)
run 0 "$RILL" train "$tmp/data" "${ftrl[@]}" --model "$tmp/whole"
run 0 "$RILL" model "$tmp/whole"
zeros=$(grep -oE '[0-9]+ not 0' "$tmp/out" | cut -d' ' -f1)
((zeros > 5 && zeros < 45)) || fail "$zeros of 60 weights are not 0 with l1"
run 0 "$RILL" train "$tmp/data" "${ftrl[@]}" --checkpoint "$tmp/c" --epochs 4
run 0 "$RILL" train "$tmp/data" "${ftrl[@]}" --checkpoint "$tmp/c" --resume --model "$tmp/resumed"
cmp -s "$tmp/whole" "$tmp/resumed" || fail "ftrl, resumed, ends elsewhere"
run 1 "$RILL" train "$tmp/data" --C 1 --solver ftrl --schedule 1/t
has "$tmp/err" "solver ftrl needs"

# Probabilities of support vector machines, of two labels and of three.
awk '{ $1 = NR % 3 == 0 ? 5 : $1; print }' "$tmp/data" >"$tmp/three"
for file in data three; do
    run 0 "$RILL" train "$tmp/$file" --loss squared_hinge --C 0.01 --model "$tmp/model" --ranks 2
    run 1 "$RILL" predict "$tmp/$file" --model "$tmp/model" --probabilities "$tmp/p"
    has "$tmp/err" "probabilities need"
    run 0 "$RILL" train "$tmp/$file" --loss squared_hinge --C 0.01 --calibrate --ranks 2 \
        --model "$tmp/model"
    run 0 "$RILL" predict "$tmp/$file" --model "$tmp/model" --probabilities "$tmp/p"
    loss=$(number log_loss "$tmp/out")
    least "$([[ $file == data ]] && echo 0.45 || echo 1.05)" "$loss" "log loss of $file, calibrated"
    awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i; if (s < 0.999999 || s > 1.000001) bad = 1 }
        END { exit bad }' "$tmp/p" || fail "probabilities do not add up to 1"
done
# Rows that were trained on do not calibrate, whatever --valid is; a model that was cut is none.
svm=(--loss squared_hinge --C 0.01 --calibrate)
run 0 "$RILL" train "$tmp/three" "${svm[@]}" --model "$tmp/want"
run 0 "$RILL" train "$tmp/three" "${svm[@]}" --model "$tmp/got" --valid "$tmp/data"
cmp -s "$tmp/want" "$tmp/got" || fail "--valid changes what --calibrate finds"
sed '$d' "$tmp/want" >"$tmp/got"
run 1 "$RILL" predict "$tmp/three" --model "$tmp/got"
has "$tmp/err" "got: ends after the sigmoids of 2 of 3 columns"
run 2 "$RILL" train "$tmp/data" --calibrate
run 2 "$RILL" train "$tmp/numbers" --C 1 --calibrate --model "$tmp/model"
has "$tmp/err" "a regression has no probabilities"

# The hybrid ends near the optimum where features are of very different frequency.
"$RILL" gen url --samples 6000 -o "$tmp/url" --quiet
way=(--C 3 --hash 14 --scale none)
run 0 "$RILL" train "$tmp/url" "${way[@]}" --solver newton --epochs 40 --tolerance 1e-6
optimum=$(number objective "$tmp/out")
for ranks in 1 2; do
    run 0 "$RILL" train "$tmp/url" "${way[@]}" --solver hybrid --epochs 8 --ranks $ranks
    near=$(number objective "$tmp/out")
    least "$(awk "BEGIN { print 1.01 * $optimum }")" "$near" "the hybrid on $ranks ranks"
done

# Ranks that share few features find the same optimum as one rank, with one algorithm to the same
# bits over every link; so from a model that has weights of features that no row has, and with three
# classes.
"$RILL" gen url --samples 2000 -o "$tmp/few" --quiet
way=(--C 3 --hash 18 --scale none --solver newton --epochs 40 --tolerance 1e-6)
run 0 "$RILL" train "$tmp/few" "${way[@]}" --model "$tmp/warm"
optimum=$(number objective "$tmp/out")
awk '{ print (NR % 3) substr($0, index($0, " ")) }' "$tmp/few" >"$tmp/wide3"
run 0 "$RILL" train "$tmp/wide3" "${way[@]}" --epochs 3
three=$(number objective "$tmp/out")
head -n 500 "$tmp/few" >"$tmp/part"
run 0 "$RILL" train "$tmp/part" "${way[@]}" --init "$tmp/warm"
part=$(number objective "$tmp/out")
close_to() { # close_to WANT WHAT: the objective in $tmp/out
    local got
    got=$(number objective "$tmp/out")
    awk "BEGIN { exit !($got <= 1.001 * $1 && $got >= 0.999 * $1) }" || fail "$2: $got, not $1"
}
for ranks in 2 3; do
    by=(--ranks "$ranks" --algorithm split_allgather)
    run 0 "$RILL" train "$tmp/few" "${way[@]}" "${by[@]}" --model "$tmp/want"
    close_to "$optimum" "newton on $ranks ranks"
    run 0 "$RILL" train "$tmp/few" "${way[@]}" "${by[@]}" --model "$tmp/got" --link local
    cmp -s "$tmp/want" "$tmp/got" || fail "newton on $ranks ranks: other bits over another link"
    run 0 "$RILL" train "$tmp/wide3" "${way[@]}" --epochs 3 --ranks $ranks
    awk "BEGIN { exit !($(number objective "$tmp/out") <= 1.05 * $three) }" ||
        fail "three classes on $ranks ranks: $(number objective "$tmp/out"), not $three"
    run 0 "$RILL" train "$tmp/part" "${way[@]}" --ranks $ranks --init "$tmp/warm"
    close_to "$part" "newton on $ranks ranks, from a model"
done

# Ranks that try ahead choose what one rank does; of so many rows there is one split.
"$RILL" gen url --samples 6000 -o "$tmp/many" --quiet
chosen() { grep -o 'C = .*, chosen\|loss on held-out rows.*' "$tmp/out"; }
run 0 "$RILL" train "$tmp/many" --epochs 1
want=$(chosen)
for ranks in 2 3; do
    run 0 "$RILL" train "$tmp/many" --epochs 1 --ranks $ranks
    [[ $(chosen) == "$want" ]] || fail "$ranks ranks choose $(chosen), one $want"
done

# The batch of sgd.
run 0 "$RILL" train "$tmp/url" --C 1 --solver sgd --epochs 1 --model "$tmp/want"
has "$tmp/out" "solver sgd, batch 24"
run 0 "$RILL" train "$tmp/url" --C 1 --batch auto --epochs 1 --model "$tmp/got"
has "$tmp/out" "solver sgd, batch 24"
cmp -s "$tmp/want" "$tmp/got" || fail "--batch auto is another on one rank"
run 0 "$RILL" train "$tmp/url" --C 1 --batch 7 --batch rows --epochs 1 --model "$tmp/got"
cmp -s "$tmp/want" "$tmp/got" || fail "--batch rows is not the default"
run 0 "$RILL" train "$tmp/url" --C 1 --batch 7 --epochs 1
has "$tmp/out" "solver sgd, batch 7"
run 2 "$RILL" train "$tmp/url" --batch none
has "$tmp/err" "rows, auto or a number of at least 1"
