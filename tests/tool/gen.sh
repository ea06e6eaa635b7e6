# rill gen: the same bytes whatever the threads and the form, the promised shape, wrong usage.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" gen url --samples 1500 --seed 3 --threads 1 -o "$tmp/one"
has "$tmp/out" "url: 1500 rows, dimension 3231961" "distinct features in the first 1,000 rows: "
if grep -q "8,000" "$tmp/out"; then fail "a figure of 8,000 rows from 1,500"; fi
run 0 "$RILL" gen url --samples 1500 --seed 3 --threads 3 --output "$tmp/three" --quiet
[[ ! -s $tmp/out ]] || fail "--quiet prints"
cmp -s "$tmp/one" "$tmp/three" || fail "three threads give other bytes than one"
run 0 "$RILL" gen url --seed 3 --samples 1500
cmp -s "$tmp/one" "$tmp/out" || fail "standard output differs from the file"
has "$tmp/err" "distinct features"
# Fewer samples are the first of more; other seeds differ.
run 0 "$RILL" gen url --samples 700 --seed 3 --quiet
cmp -s "$tmp/out" <(head -n 700 "$tmp/one") || fail "700 samples are not the first of 1,500"
run 0 "$RILL" gen url --samples 700 --seed 4 --quiet
if cmp -s "$tmp/out" <(head -n 700 "$tmp/one"); then fail "the seed does not matter"; fi
# Bytes that this version stands by.
sum=$(cksum <"$tmp/one")
[[ $sum == "664618703 1172678" ]] || fail "the bytes of seed 3 changed: $sum"

# The binary form is what convert makes of the text, and comes back as that text.
run 0 "$RILL" gen url --samples 1500 --seed 3 --format binary -o "$tmp/direct" --quiet
run 0 "$RILL" convert "$tmp/one" "$tmp/converted" --quiet
cmp -s "$tmp/direct" "$tmp/converted" || fail "the binary form differs from the converted text"
run 0 "$RILL" gen webspam --samples 150 -o "$tmp/web" --quiet
run 0 "$RILL" gen webspam --samples 150 --format binary -o "$tmp/webdirect" --quiet
run 0 "$RILL" convert "$tmp/webdirect" "$tmp/webtext" --quiet
cmp -s "$tmp/web" "$tmp/webtext" || fail "webspam: the binary form is other data than the text"

# The shape: dimension, row lengths, both labels.
shape() { # shape FILE DIM LEAST MOST: mean entries of a row in between
    awk -v dim="$2" -v least="$3" -v most="$4" '
        { n += NF - 1; label[$1]++; split($NF, last, ":"); if (last[1] > top) top = last[1] }
        END {
            if (top != dim) { print "largest index " top; exit 1 }
            if (n / NR < least || n / NR > most) { print "mean entries " n / NR; exit 1 }
            if (label["+1"] < NR / 5 || label["-1"] < NR / 5) { print "labels"; exit 1 }
        }' "$1" || fail "the shape of $1"
}
shape "$tmp/one" 3231961 112 119
shape "$tmp/web" 16609143 3000 4400

wrong() { # wrong TEXT ARGUMENT...
    local text=$1
    shift
    run 2 "$RILL" gen "$@"
    has "$tmp/err" "$text"
    [[ ! -s $tmp/out ]] || fail "there is something on stdout: rill gen $*"
}
wrong "which shape?" --samples 3
wrong "unknown shape 'webspm'; did you mean 'webspam'?" webspm --samples 3
wrong "unknown shape 'mnist'" mnist --samples 3
wrong "--samples is missing" url
wrong "unexpected argument 'more'" url more --samples 3
for samples in 0 x -1 ""; do wrong "--samples: '$samples' is not" url --samples "$samples"; done
wrong "--seed: 'x' is not" url --samples 3 --seed x
wrong "--threads: '0' is not" url --samples 3 --threads 0
wrong "--format: 'csv' is not" url --samples 3 --format csv
wrong "--format binary needs a file" url --samples 3 --format binary
run 1 "$RILL" gen url --samples 3 -o /nowhere/x
has "$tmp/err" "/nowhere/x: cannot be written"
run 1 bash -c "'$RILL' gen url --samples 3000 --quiet >/dev/full"
