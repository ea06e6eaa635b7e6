# rill train and predict: quality on real data, LIBLINEAR's objective and files, checkpoints, errors.
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
    for (j = 1; j <= 60; j++) if (rand() < 0.2) { v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s + 3 * rand() - 1.5 > 0 ? "+1" : "-1") line } }' >"$tmp/data"
head -n 700 "$tmp/data" >"$tmp/train"
tail -n 200 "$tmp/data" >"$tmp/test"

number() { # number NAME FILE: the value behind a word
    grep -oE "$1 [-0-9.e+]+" "$2" | tail -n 1 | cut -d' ' -f2
}
least() { # least A B TEXT: a >= b
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }' || fail "$3: $1 is below $2"
}

run 0 "$RILL" train "$tmp/train" --normalize --solver newton --epochs 15 --C 10 --valid "$tmp/test" \
    --model "$tmp/model" --log "$tmp/log"
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

# A run that stopped after three epochs and is resumed, on two ranks, ends in the same bits; so with a reducer.
for way in "" "--reducer oktopk --density 0.2"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 6 $way --model "$tmp/whole" --quiet
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 3 $way --checkpoint "$tmp/check" --quiet
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/train" --ranks 2 --epochs 6 $way --checkpoint "$tmp/check" --resume \
        --model "$tmp/resumed" --quiet
    cmp -s "$tmp/whole" "$tmp/resumed" || fail "the resumed run differs: $way"
    [[ $(find "$tmp" -name 'check*' | wc -l) == $((${#way} ? 2 : 1)) ]] || fail "checkpoints are left"
    rm -f "$tmp"/check*
done

# Errors: once, with file, line and token, on any number of ranks.
sed '400s/.*/+1 3:x/' "$tmp/train" >"$tmp/bad"
for ranks in 1 3; do
    run 1 "$RILL" train "$tmp/bad" --ranks $ranks
    has "$tmp/err" "$tmp/bad:400: " "'3:x'"
    [[ $(grep -c "bad:400" "$tmp/err") == 1 ]] || fail "the error is told more than once"
done
run 1 "$RILL" train "$tmp/nowhere"
run 1 "$RILL" train "$tmp/train" --model /nowhere/x --epochs 1
run 1 "$RILL" train "$tmp/train" --loss nothing
has "$tmp/err" 'loss "nothing" is unknown'
run 1 "$RILL" train "$tmp/train" --resume --checkpoint "$tmp/none"
grep -v '^+1' "$tmp/train" >"$tmp/one"
run 1 "$RILL" train "$tmp/one"
has "$tmp/err" "all rows have the label -1"
run 1 "$RILL" predict "$tmp/test" --model "$tmp/train"
has "$tmp/err" "$tmp/train:1: not a field of a model"
for words in "" "a b" "x --lr y" "x --epochs 0" "x --resume" "x --early-stop 3" "x --nonsense"; do
    # shellcheck disable=SC2086
    run 2 "$RILL" train $words
done
run 2 "$RILL" predict "$tmp/test"

# Real data, where it is.
data=${RILL_DATA:-$root/../shared/data}
if [[ ! -d $data ]]; then
    echo "note: no real data in $data: quality is not checked"
    exit 0
fi
quality() { # quality LEAST TRAIN TEST OPTION...
    local wanted=$1 train=$data/$2 test=$data/$3
    shift 3
    run 0 "$RILL" train "$train" --normalize --epochs 8 --model "$tmp/real" "$@"
    run 0 "$RILL" predict "$test" --normalize --model "$tmp/real"
    least "$(number accuracy "$tmp/out")" "$wanted" "accuracy of $(basename "$test")"
    echo "$(basename "$test"): $(tail -n 2 "$tmp/out" | xargs)"
}
quality 0.944 news20-12gram.train.svm.xz news20-12gram.test.svm.xz --C 100 --ranks 2
quality 0.88 rcv1-small.train.svm.xz rcv1-small.test.svm.xz --C 100 --schedule 1/t
run 0 "$RILL" train "$data/a9a.svm.xz" --solver newton --epochs 12 --seed 3 --valid 20%
least "$(number acc "$tmp/out")" 84.5 "a9a"
echo "a9a, held-out fifth: $(number acc "$tmp/out") %"

if ! command -v liblinear-train >/dev/null; then
    echo "note: there is no liblinear-train: its objective and files are not compared"
    exit 0
fi
xz -dc "$data/a9a.svm.xz" >"$tmp/a9a"
objective() { # objective MODEL C: of LIBLINEAR's logistic regression on a9a
    awk -v C="$2" 'FNR == NR { if (weights) w[++n] = $1; if ($1 == "w") weights = 1
                               if ($1 == "label") sign = $2; next }
        { z = 0; for (i = 2; i <= NF; i++) { split($i, p, ":"); z += w[p[1]] * p[2] }
          sum += log(1 + exp(-$1 * sign * z)) }
        END { for (j in w) r += w[j] * w[j]; printf "%.6f", C * sum + r / 2 }' "$1" "$tmp/a9a"
}
liblinear-train -q -s 0 -c 1 -e 0.0001 "$tmp/a9a" "$tmp/theirs"
best=$(objective "$tmp/theirs" 1)
for how in "--solver newton --epochs 20" "--solver newton --epochs 20 --ranks 3" \
    "--optimizer plain --lr 0.5 --batch 10 --epochs 100 --decay 0.5"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/a9a" $how --model "$tmp/ours"
    ours=$(objective "$tmp/ours" 1)
    awk -v a="$ours" -v b="$best" 'BEGIN { exit !(a < 1.001 * b) }' ||
        fail "objective $ours, LIBLINEAR's is $best: $how"
    echo "a9a, objective $ours, LIBLINEAR's $best: $how"
done
liblinear-predict -q "$tmp/a9a" "$tmp/ours" "$tmp/their-labels"
run 0 "$RILL" predict "$tmp/a9a" --model "$tmp/ours" -o "$tmp/our-labels"
cmp -s "$tmp/their-labels" "$tmp/our-labels" || fail "liblinear-predict predicts other labels"
