# rill train and predict: what they print and write, checkpoints, early stopping, threads, errors.
. "$(dirname "$0")/common.bash"
not_simulated

# Options in the manual.
for command in train predict; do
    run 0 "$RILL" "$command" --help
    cp "$tmp/out" "$tmp/long"
    run 0 "$RILL" help "$command"
    cmp -s "$tmp/out" "$tmp/long" || fail "help $command differs from $command --help"
    awk 'length > 95 { print; bad = 1 } END { exit bad }' "$tmp/long" >&2 || fail "lines too long"
    grep -oE -- '--[A-Za-z][A-Za-z0-9-]+' "$tmp/long" | sort -u | while read -r option; do
        grep -qE -- "Fl (h , )?-${option#--}( |\$)" "$root/man/rill-$command.1" ||
            fail "$option is not in the manual of $command"
    done
done

# A small set: the label follows from few features.
awk 'BEGIN { srand(7); for (i = 0; i < 900; i++) { s = 0; line = ""
    for (j = 1; j <= 60; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s + 3 * rand() - 1.5 > 0 ? "+1" : "-1") line } }' >"$tmp/data"
head -n 700 "$tmp/data" >"$tmp/train"
tail -n 200 "$tmp/data" >"$tmp/test"

run 0 "$RILL" train "$tmp/train" --normalize --solver newton --epochs 15 --C 10 \
    --valid "$tmp/test" --model "$tmp/model" --log "$tmp/log"
has "$tmp/out" "epoch  15" "samples/s" "comm" "memory of rank 0" "done  objective"
[[ $(wc -l <"$tmp/log") == 15 ]] || fail "the log has not one line per epoch"
has "$tmp/log" '"epoch":15' '"valid_auc":' '"samples_per_s":' '"sent_bytes":'
run 0 "$RILL" predict "$tmp/test" --model "$tmp/model" --normalize -o "$tmp/labels"
least "$(number accuracy "$tmp/out")" 0.9 "accuracy of the small set"
least "$(number auc "$tmp/out")" 0.95 "AUC of the small set"
[[ $(wc -l <"$tmp/labels") == 200 ]] || fail "not one label per row"
run 0 "$RILL" predict "$tmp/test" --model "$tmp/model" --normalize -o "$tmp/labels3" --ranks 3
cmp -s "$tmp/labels" "$tmp/labels3" || fail "three ranks predict other labels than one"
run 0 "$RILL" predict "$tmp/test" --model "$tmp/model" --normalize -o "$tmp/p" --probability
head -n 1 "$tmp/p" | grep -q "labels 1 -1" || fail "no labels before the probabilities"

# Under a large C the first gradient is huge: newton goes on while its steps still pay.
awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) { y = int(rand() * 6); line = ""
    for (j = 1; j <= 200; j++) if (rand() < (j % 6 == y ? 0.2 : 0.06)) line = line " " j ":0.2"
    print y line } }' >"$tmp/words"
for tolerance in 1e-3 1e-7; do
    run 0 "$RILL" train "$tmp/words" --solver newton --C 1e6 --epochs 100 --tolerance $tolerance
    number objective "$tmp/out" >"$tmp/at.$tolerance"
done
least "$(cat "$tmp/at.1e-7")" "$(awk '{ print $1 / 1.05 }' "$tmp/at.1e-3")" "the optimum at C = 1e6"

# A few rows that are all predicted right do not ask for an endless C.
awk 'BEGIN { srand(4); for (i = 0; i < 60; i++) { y = i % 2
    print y " 1:" (y ? 1 : -1) * (1 + rand()) " 2:" rand() " 3:" rand() } }' >"$tmp/apart"
run 0 "$RILL" train "$tmp/apart"
grep -qE "C = (10|31.6228|100|316.228|1000), solver" "$tmp/out" || fail "C of rows that lie apart"

# No flag but the file: what was taken is printed and in the log; a good model, whatever the units.
sed 's/ 2:/ 2:0.0000/; s/\( 3:[0-9]*\)/\1e5/' "$tmp/train" >"$tmp/units"
for file in train units; do
    run 0 "$RILL" train "$tmp/$file" --log "$tmp/log" --model "$tmp/default"
    has "$tmp/out" "classify: 2 labels, loss logistic, intercept, scale " ", solver newton"
    has "$tmp/out" "by scale: none " "(stopped)"
    has "$tmp/log" '"solver":"newton"' '"task":"classify"' '"labels":2' '"intercept":true'
    run 0 "$RILL" predict "$tmp/$file" --model "$tmp/default"
    least "$(number accuracy "$tmp/out")" 0.9 "accuracy of the defaults on $file"
done
run 0 "$RILL" train "$tmp/train" --no-bias --scale none --epochs 1
has "$tmp/out" "no bias, scale none"
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { x = rand(); y = rand()
    print 100 + 3 * x - y + 0.01 * rand() " 1:" x " 2:" 1000 * y } }' >"$tmp/numbers"
run 0 "$RILL" train "$tmp/numbers" --model "$tmp/default"
has "$tmp/out" "regress: loss squared, intercept"
run 0 "$RILL" predict "$tmp/numbers" --model "$tmp/default"
least 0.01 "$(number rmse "$tmp/out")" "error of a regression"
awk '{ $1 = NR % 3 == 0 ? 5 : $1; print }' "$tmp/train" >"$tmp/three"
run 0 "$RILL" train "$tmp/three" --C 1 --epochs 2
has "$tmp/out" "3 labels, loss logistic, softmax"
run 0 "$RILL" train "$tmp/three" --C 1 --epochs 2 --multiclass ovr
has "$tmp/out" "ovr, intercept"
run 0 "$RILL" train "$tmp/train" --solver hybrid --epochs 8 --ranks 2 --model "$tmp/default"
run 0 "$RILL" predict "$tmp/test" --model "$tmp/default"
least "$(number accuracy "$tmp/out")" 0.9 "accuracy of the hybrid"

# C: chosen by sgd, on the same rows by any number of ranks, and not of rows that are held out; else
# as given.
sgd=(--solver sgd --scale none --no-bias)
run 0 "$RILL" train "$tmp/train" --normalize "${sgd[@]}" --epochs 1 --log "$tmp/log"
has "$tmp/out" "C = 1" "decay = 0, chosen in" "loss on held-out rows" ", decay 0)"
grep -q '"decay":0.0,' "$tmp/log" || fail "the log has not the decay that was chosen"
chosen=$(grep -oE '"C":[^,]+' "$tmp/log")
least "${chosen#*:}" 10 "C, where rows are many and labels almost certain"
for words in "--ranks 3" "--dense --ranks 2" "--reducer topk --ranks 2" "--C auto --quiet"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --normalize "${sgd[@]}" --epochs 1 --batch 7 $words \
        --log "$tmp/log"
    grep -q "$chosen," "$tmp/log" || fail "another C with $words: not $chosen"
done
sed "s/^+1/-1/; t; s/^-1/+1/" "$tmp/test" >"$tmp/wrong" # labels turned round
run 0 "$RILL" train "$tmp/train" --normalize "${sgd[@]}" --epochs 1 --valid "$tmp/wrong" \
    --log "$tmp/log" --quiet
grep -q "$chosen," "$tmp/log" || fail "validation rows have changed C"
for words in "--l2 2" "--l1 1" "--solver newton" "--solver scd" "--C 1"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --epochs 1 $words --log "$tmp/log"
    grep -q '"C":1.0,' "$tmp/log" || fail "C was chosen with $words"
    if grep -q "held-out rows" "$tmp/out"; then fail "C was tried with $words"; fi
    grep -q '"decay":0.25,' "$tmp/log" || fail "decay was chosen with $words"
done
# A falling rate where a constant one is worse, and what was given.
run 0 "$RILL" train "$tmp/train" "${sgd[@]}" --epochs 1 --log "$tmp/log"
has "$tmp/out" "decay = 0.25, chosen in" ", decay 0)"
grep -q '"decay":0.25,' "$tmp/log" || fail "the log has not the decay that was chosen"
for words in "--decay 0.125" "--decay 0.125 --C auto"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --normalize --scale none --epochs 1 $words --log "$tmp/log"
    grep -q '"decay":0.125,' "$tmp/log" || fail "not the decay that was given: $words"
    if grep -q "decay" "$tmp/out"; then fail "decay was tried with $words"; fi
done
head -n 20 "$tmp/train" >"$tmp/few"
run 0 "$RILL" train "$tmp/few" --epochs 1
has "$tmp/out" "C = 1: there are too few rows"

# A run that stopped after three epochs and is resumed, on two ranks, ends in the same bits; so with
# a reducer, and with the other decay that may be chosen.
for way in "" "--reducer oktopk --density 0.2" "--normalize --solver sgd"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 6 $way --model "$tmp/whole" --quiet
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 3 $way --checkpoint "$tmp/check" --quiet
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 6 $way --checkpoint "$tmp/check" --resume \
        --model "$tmp/resumed" --quiet
    cmp -s "$tmp/whole" "$tmp/resumed" || fail "the resumed run differs: $way"
    [[ $(find "$tmp" -name 'check*' | wc -l) == $([[ $way == --red* ]] && echo 2 || echo 1) ]] ||
        fail "checkpoints are left"
    rm -f "$tmp"/check*
done

# Resumed, nothing is chosen again. Ctrl-C ends a run after the step, with a checkpoint.
run 0 "$RILL" train "$tmp/train" --epochs 2 --checkpoint "$tmp/check" --log "$tmp/log"
chosen=$(grep -oE '"C":[^,]+' "$tmp/log" | tail -n 1)
run 0 "$RILL" train "$tmp/train" --epochs 3 --checkpoint "$tmp/check" --resume --log "$tmp/log"
if grep -q "held-out rows" "$tmp/out"; then fail "C was chosen again by a resumed run"; fi
[[ $(grep -oE '"C":[^,]+' "$tmp/log" | tail -n 1) == "$chosen" ]] ||
    fail "the resumed run has another C"
rm -f "$tmp/log"
long=("$RILL" train "$tmp/train" --C 1 --solver sgd --checkpoint "$tmp/check" --log "$tmp/log")
setsid "${long[@]}" --epochs 1000000 >"$tmp/out" 2>"$tmp/err" &
job=$!
for ((i = 0; i < 300; i++)); do
    if [[ -s $tmp/log ]]; then break; fi
    sleep 0.1
done
kill -INT "$job"
status=0
wait "$job" || status=$?
[[ $status == 1 ]] || fail "status $status of an interrupted run, not 1"
has "$tmp/err" "ends after this step" "interrupted " "go on with: rill train" "--resume"
epochs=$(($(wc -l <"$tmp/log") + 1))
run 0 "${long[@]}" --epochs "$epochs" --resume --quiet
[[ $(wc -l <"$tmp/log") == "$epochs" ]] || fail "the interrupted run was not resumed where it ended"
rm -f "$tmp/check" "$tmp/log"

# Early stopping goes on counting after a resume, and a run that has stopped stays so.
stop=(--valid "$tmp/test" --C 1000 --lr 2 --schedule constant --early-stop 2)
run 0 "$RILL" train "$tmp/train" --epochs 200 "${stop[@]}" --model "$tmp/whole" --log "$tmp/log"
epochs=$(wc -l <"$tmp/log")
((epochs > 2 && epochs < 200)) || fail "early stopping after $epochs epochs"
run 0 "$RILL" train "$tmp/train" --epochs $((epochs - 1)) "${stop[@]}" \
    --checkpoint "$tmp/check" --quiet
for again in 1 2; do
    run 0 "$RILL" train "$tmp/train" --epochs 200 "${stop[@]}" --checkpoint "$tmp/check" \
        --resume --model "$tmp/resumed"
    has "$tmp/out" "(stopped)"
    cmp -s "$tmp/whole" "$tmp/resumed" ||
        fail "the run that was resumed before it stopped differs ($again)"
done
rm -f "$tmp/check"

# Any number of threads: the same bits.
for solver in sgd newton scd hybrid; do
    for threads in 1 2 3; do
        run 0 "$RILL" train "$tmp/train" --ranks 2 --solver $solver --epochs 3 --threads $threads \
            --model "$tmp/threads$threads"
        cmp -s "$tmp/threads1" "$tmp/threads$threads" ||
            fail "$solver: $threads threads give other bits than one"
    done
done

# A model that one rank cannot read: one message, and nobody waits.
# shellcheck disable=SC2016
run 1 timeout 30 "$root/scripts/mpirun-test" 2 sh -c 'model=$2
    if [ "${PMIX_RANK:-$PMI_RANK}" = 1 ]; then model=/nowhere/model; fi
    exec "$0" predict "$1" --model "$model"' "$RILL" "$tmp/test" "$tmp/whole"
[[ $(grep -c "/nowhere/model: cannot be read" "$tmp/err" "$tmp/out" |
    awk -F: '{ n += $2 } END { print n }') == 1 ]] ||
    fail "not one message about the model: $(cat "$tmp/err")"

# Errors: once, with file, line and token, on any number of ranks.
sed '400s/.*/+1 3:x/' "$tmp/train" >"$tmp/bad"
for ranks in 1 3; do
    run 1 "$RILL" train "$tmp/bad" --ranks $ranks
    has "$tmp/err" "$tmp/bad:400: " "'3:x'"
    [[ $(grep -c "bad:400" "$tmp/err") == 1 ]] || fail "the error is told more than once"
done
run 1 "$RILL" train "$tmp/nowhere"
for option in --model --checkpoint --log; do # said before the first epoch
    run 1 "$RILL" train "$tmp/train" $option /nowhere/x
    has "$tmp/err" "/nowhere/x: cannot be written"
    if grep -q -e epoch -e "C = " "$tmp/out"; then fail "$option: trained before it was opened"; fi
done
run 1 "$RILL" train "$tmp"
has "$tmp/err" "is a folder"
run 1 "$RILL" train /dev/null
has "$tmp/err" "is not a regular file"
run 1 "$RILL" train -
has "$tmp/err" "save them first"
run 2 "$RILL" train "$tmp/train" --loss nothing
has "$tmp/err" "--loss: unknown 'nothing' (logistic, "
for option in scale multiclass task optimizer schedule reducer algorithm codec solver; do
    run 2 "$RILL" train "$tmp/train" --$option nothing
    has "$tmp/err" "--$option: unknown 'nothing' ("
done
run 0 "$RILL" train "$tmp/train" --solver auto --task auto --scale auto --algorithm auto \
    --codec auto --C auto
run 1 "$RILL" train "$tmp/train" --resume --checkpoint "$tmp/none"
grep -v '^+1' "$tmp/train" >"$tmp/one"
run 1 "$RILL" train "$tmp/one"
has "$tmp/err" "all rows have the label -1"
run 1 "$RILL" predict "$tmp/test" --model "$tmp/train"
has "$tmp/err" "$tmp/train:1: not a field of a model"
for words in "x --C 1 --scale auto" "x --bias 1 --no-bias"; do
    # shellcheck disable=SC2086
    run 2 "$RILL" train $words
done
for words in "" "x --window 0" "x --lr y" "x --decay -1" "x --epochs 0" "x --resume" \
    "x --early-stop 3" "x --nonsense"; do
    # shellcheck disable=SC2086
    run 2 "$RILL" train $words
done
run 2 "$RILL" predict "$tmp/test"
