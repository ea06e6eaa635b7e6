# rill train on data that do not fit, on several files and on pipes: the same bits as in memory.
. "$(dirname "$0")/common.bash"
not_simulated

"$RILL" gen url --samples 12000 -o "$tmp/all.svm" --quiet
head -n 5000 "$tmp/all.svm" >"$tmp/part-1.svm"
tail -n +5001 "$tmp/all.svm" >"$tmp/part-2.svm"
mkfifo "$tmp/pipe"
"$RILL" convert "$tmp/all.svm" "$tmp/all.bin" --quiet
way=(--C 1 --solver sgd --epochs 2 --window 700 --hash 12 --normalize --quiet)
run 0 "$RILL" train "$tmp/all.svm" "${way[@]}" --model "$tmp/want"
same() { cmp -s "$tmp/want" "$tmp/got" || fail "$1: another model"; }
for words in "all.svm --stream" "all.bin --stream" "part-1.svm $tmp/part-2.svm" \
    "part-*.svm --stream" "part-1.svm $tmp/part-2.svm --stream"; do
    # shellcheck disable=SC2086
    run 0 env -C "$tmp" "$RILL" train "$tmp/"$words "${way[@]}" --model "$tmp/got"
    same "$words"
done
run 0 "$RILL" train "$tmp/part-*.svm" "${way[@]}" --model "$tmp/got"
same "a pattern that no shell has seen"
for tool in gzip xz zstd; do
    if ! command -v $tool >/dev/null; then continue; fi
    $tool -c "$tmp/part-1.svm" >"$tmp/packed"
    if ! "$RILL" convert "$tmp/packed" "$tmp/packed.bin" --quiet 2>"$tmp/err"; then
        has "$tmp/err" "has no library to read"
        continue
    fi
    run 0 "$RILL" train "$tmp/packed" "$tmp/part-2.svm" "${way[@]}" --stream --model "$tmp/got"
    same $tool
done
run 0 "$RILL" train - "${way[@]}" --stream --model "$tmp/got" <"$tmp/all.svm"
same "standard input"
cat "$tmp/all.svm" >"$tmp/pipe" &
run 0 "$RILL" train "$tmp/pipe" "${way[@]}" --stream --model "$tmp/got"
same "a pipe"

# On ranks: the same parts as in memory, of one file and of two; other windows are other orders.
run 0 "$RILL" train "$tmp/all.svm" "${way[@]}" --model "$tmp/want" --ranks 3
run 0 "$RILL" train "$tmp/all.svm" "${way[@]}" --model "$tmp/got" --ranks 3 --stream
same "three ranks"
run 0 "$RILL" train "$tmp/part-1.svm" "$tmp/part-2.svm" "${way[@]}" --model "$tmp/got" --ranks 3
same "three ranks and two files"
run 0 "$RILL" train "$tmp/all.svm" "${way[@]}" --window 900 --model "$tmp/got" --ranks 3
if cmp -s "$tmp/want" "$tmp/got"; then fail "--window does nothing"; fi
run 1 "$RILL" train - --stream --ranks 2 <"$tmp/all.svm"
has "$tmp/err" "a pipe is read by one rank"

# Indices from 0, of which the first buffer has none; queries; the other solvers; what is chosen.
awk 'BEGIN { srand(5); for (i = 0; i < 600; i++) { x = rand(); y = rand()
    print (x > y ? 1 : -1) " qid:" int(i / 10) (i > 500 ? " 0:1" : "") " 1:" x " 2:" y } }' \
    >"$tmp/zero"
for words in "" "--C 1 --solver newton --epochs 4 --valid 0.2"; do
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/zero" $words --window 100 --model "$tmp/want"
    # shellcheck disable=SC2086
    run 0 "$RILL" train "$tmp/zero" $words --window 100 --model "$tmp/got" --stream
    same "indices from 0 $words"
    has "$tmp/out" "600 rows have a query"
done

# A binary file says where its indices start, whether the first one occurs or not.
"$RILL" convert "$tmp/zero" "$tmp/zero.bin" --quiet
grep -v ' 0:1' "$tmp/zero" >"$tmp/none"
"$RILL" convert "$tmp/none" "$tmp/none.bin" --base 0 --quiet
for file in zero none; do
    run 0 "$RILL" train "$tmp/$file.bin" --C 1 --solver newton --model "$tmp/want"
    run 0 "$RILL" train "$tmp/$file.bin" --C 1 --solver newton --model "$tmp/got" --stream
    same "$file.bin"
    run 1 "$RILL" train "$tmp/$file.bin" --C 1 --solver newton --stream --base 1
    has "$tmp/err" "$file.bin: its indices start at 0, not at 1"
done

# Memory: rows that do not fit in what is allowed are trained on all the same. Messages.
least_of() { (ulimit -d "$1" && shift && "$@"); }
for _ in 1 2 3 4 5 6 7 8; do cat "$tmp/all.svm"; done >"$tmp/large.svm"
way=(--C 1 --solver sgd --epochs 1 --hash 12 --quiet)
run 1 least_of 50000 "$RILL" train "$tmp/large.svm" "${way[@]}" --model "$tmp/got"
has "$tmp/err" "out of memory"
run 0 least_of 50000 "$RILL" train "$tmp/large.svm" "${way[@]}" --stream --model "$tmp/got"
[[ -z $(find "$tmp" -name 'rill-*') ]] || fail "temporary files are left"
printf '1 1:1 3000000000:1\n-1 2:1\n' >"$tmp/wild.svm"
run 1 least_of 2000000 "$RILL" train "$tmp/wild.svm" --C 1
has "$tmp/err" "the largest feature is 3000000000"
has "$tmp/err" "--hash 22"
# Before memory is promised that is not there: in the search for C, and without it.
for more in "" "--C 1 --scale none" "--C 1 --scale none --solver sgd"; do
    # shellcheck disable=SC2086
    run 1 least_of 1000000 "$RILL" train "$tmp/wild.svm" $more
    has "$tmp/err" "out of memory: a model of 300000000"
done
run 0 least_of 2000000 "$RILL" train "$tmp/wild.svm" --C 1 --hash 12
# What is resident is the rows, whatever the form, and the program; sanitizers have more of it.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$(dirname "$RILL")/../CMakeCache.txt" 2>/dev/null || true; }
"$RILL" convert "$tmp/large.svm" "$tmp/large.bin" --quiet
run 0 "$RILL" train "$tmp/large.svm" --C 1 --solver sgd --epochs 1 --hash 12 --stream
least 93 "$(number data "$tmp/out")" "mapped: 8 bytes of each of 11 million entries"
for form in svm bin; do
    if [[ $(cached RILL_SANITIZE) == *[a-z]* ]]; then break; fi
    run 0 "$RILL" train "$tmp/large.$form" --C 1 --solver sgd --epochs 1 --hash 12
    data=$(number "data" "$tmp/out") peak=$(number most "$tmp/out")
    least "$data" 88 "$form: 8 bytes of each of 11 million entries"
    least "$(awk "BEGIN { print 1.1 * $data + 14 }")" "$peak" "$form: $peak MB for $data MB of rows"
done
sed '7s/.*/1 2:x/' "$tmp/part-2.svm" >"$tmp/bad"
for ranks in 1 2; do
    run 1 "$RILL" train "$tmp/part-1.svm" "$tmp/bad" --stream --ranks $ranks
    has "$tmp/err" "bad:7: token '2:x'"
done
run 1 "$RILL" train "$tmp/part-1.svm" "$tmp" --stream
has "$tmp/err" "is a folder"
run 1 "$RILL" train "$tmp/part-1.svm" "$tmp/no-*.svm"
has "$tmp/err" "no-*.svm: cannot be opened"

# A mapped file that is cut while it is in use.
"$RILL" train "$tmp/large.bin" --C 1 --solver sgd --epochs 1000000 --log "$tmp/log" --quiet \
    2>"$tmp/err" >"$tmp/out" &
while [[ ! -s $tmp/log ]] && kill -0 $!; do sleep 0.05; done
truncate -s 5000 "$tmp/large.bin"
wait $! && fail "a file that was cut is no failure"
has "$tmp/err" "was cut or replaced"
