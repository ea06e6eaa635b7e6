# rill convert: text to binary and back with the same bits, compressed input, messages.
. "$(dirname "$0")/common.bash"
not_simulated

printf '%s\n' '+1 1:0.1 5:3.14159274 9:1e-30' '-1 2:16777216' '2.5 4294967297:1 7:0.333333343' \
    >"$tmp/a.svm"
run 0 "$RILL" convert "$tmp/a.svm" "$tmp/a.bin"
has "$tmp/out" "3 rows, 6 entries, indices from 1" "the indices of 1 rows were sorted"
run 0 "$RILL" convert "$tmp/a.bin" "$tmp/b.svm"
cat >"$tmp/want" <<'TEXT'
+1 1:0.1 5:3.1415927 9:1e-30
-1 2:16777216
2.5 7:0.33333334 4294967297:1
TEXT
cmp "$tmp/b.svm" "$tmp/want" || fail "the text that came back"
run 0 "$RILL" convert "$tmp/b.svm" "$tmp/b.bin" --quiet
cmp -s "$tmp/a.bin" "$tmp/b.bin" || fail "the second binary file differs"
[[ ! -s $tmp/out ]] || fail "--quiet prints"

# Indices from 0, comments, CRLF, qid, no last newline.
printf '# head\r\n1 qid:3 0:1 2:1\r\n\r\n-1 1:2 1:3 # end' >"$tmp/c.svm"
run 0 "$RILL" convert "$tmp/c.svm" "$tmp/c.bin"
has "$tmp/out" "2 rows, 3 entries, indices from 0" "1 rows have a query ('qid')" \
    "1 values were added"
run 0 "$RILL" convert "$tmp/c.bin" "$tmp/d.svm" --to text
printf '+1 qid:3 0:1 2:1\n-1 1:5\n' | cmp - "$tmp/d.svm" || fail "indices from 0"
run 0 "$RILL" convert "$tmp/c.svm" "$tmp/e.svm" --to text
cmp "$tmp/d.svm" "$tmp/e.svm" || fail "text to text"

# Queries are kept, those of many chunks, too.
awk 'BEGIN { for (i = 0; i < 9000; i++)
    print (i % 2) (i < 5000 ? " qid:" int(i / 7) - 3 : "") " 1:" i + 1 }' >"$tmp/q.svm"
run 0 "$RILL" convert "$tmp/q.svm" "$tmp/q.bin"
has "$tmp/out" "5000 rows have a query"
run 0 "$RILL" convert "$tmp/q.bin" "$tmp/r.svm"
sed 's/^1 /+1 /' "$tmp/q.svm" | cmp - "$tmp/r.svm" || fail "queries through the binary form"

"$RILL" gen url --samples 800 -o "$tmp/u.svm" --quiet
"$RILL" convert "$tmp/u.svm" "$tmp/u.bin" --quiet
for tool in gzip xz zstd; do
    if command -v $tool >/dev/null; then
        $tool -c "$tmp/u.svm" >"$tmp/u.packed"
        if ! "$RILL" convert "$tmp/u.packed" "$tmp/v.bin" >"$tmp/out" 2>"$tmp/err"; then
            has "$tmp/err" "has no library to read"
            continue
        fi
        cmp -s "$tmp/u.bin" "$tmp/v.bin" || fail "$tool: other rows"
        head -c 5000 "$tmp/u.packed" >"$tmp/cut"
        run 1 "$RILL" convert "$tmp/cut" "$tmp/v.bin"
        has "$tmp/err" "$tmp/cut: is truncated"
    fi
done

# Failures name file, line and token, and leave no output behind.
failing() { # failing TEXT CONTENTS
    printf '%b' "$2" >"$tmp/bad"
    rm -f "$tmp/x"
    run 1 "$RILL" convert "$tmp/bad" "$tmp/x"
    has "$tmp/err" "$1"
    for left in "$tmp"/x*; do [[ ! -e $left ]] || fail "$left was left behind"; done
}
failing "bad:2: token '3:nan': the value is not finite" '1 1:1\n1 3:nan\n'
failing "bad:3: token '3': expected ':' and a value" '1 1:1\n\n1 3\n'
failing "bad: is empty" ''
failing "bad: has no rows" '# nothing\n'
failing "the index is not below 2^63" '1 9223372036854775808:1\n'
failing "not a valid binary data set" 'RILLDATAxxx'
cp "$tmp/u.bin" "$tmp/y"
printf 'X' | dd of="$tmp/y" bs=1 seek=3000 conv=notrunc status=none
run 1 "$RILL" convert "$tmp/y" "$tmp/x"
has "$tmp/err" "chunk 0 of" checksum
run 1 "$RILL" convert "$tmp/u.bin" "$tmp/x" --to binary
has "$tmp/err" "is in the binary form already"
run 1 "$RILL" convert /nowhere/in "$tmp/x"
has "$tmp/err" "/nowhere/in: cannot be opened"
run 1 "$RILL" convert "$tmp" "$tmp/x"
has "$tmp/err" "is not a regular file"
run 1 "$RILL" convert --base 1 "$tmp/c.svm" "$tmp/x"
has "$tmp/err" "c.svm:2: token '0': index 0, but indices start at 1"

run 2 "$RILL" convert
has "$tmp/err" "IN and OUT are missing"
run 2 "$RILL" convert one
has "$tmp/err" "OUT is missing"
run 2 "$RILL" convert a b c
has "$tmp/err" "unexpected argument 'c'"
run 2 "$RILL" convert a b --to csv
has "$tmp/err" "--to: 'csv' is not"
run 2 "$RILL" convert a b --base 2
has "$tmp/err" "--base: '2' is not"

# The real sets, where they are.
data=${RILL_DATA:-$root/../shared/data}
if [[ -f $data/rcv1-small.train.svm.xz ]] && command -v xz >/dev/null; then
    xz -dc "$data/rcv1-small.train.svm.xz" >"$tmp/rcv1.svm"
    run 0 "$RILL" convert "$tmp/rcv1.svm" "$tmp/rcv1.bin"
    has "$tmp/out" "1000 rows, 77739 entries"
    run 0 "$RILL" convert "$tmp/rcv1.bin" "$tmp/rcv1.again" --quiet
    run 0 "$RILL" convert "$tmp/rcv1.again" "$tmp/rcv1.bin2" --quiet
    cmp -s "$tmp/rcv1.bin" "$tmp/rcv1.bin2" || fail "rcv1: the values changed"
else
    echo "skipped: there is no $data/rcv1-small.train.svm.xz (RILL_DATA names the folder)"
fi
