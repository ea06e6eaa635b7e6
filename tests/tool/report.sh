# rill report: what is on the page, in which words, what is escaped, and what is refused.
. "$(dirname "$0")/common.bash"
not_simulated

cd "$tmp" || exit 1
lacks() { # lacks FILE TEXT...
    local file=$1 text
    shift
    for text in "$@"; do
        if grep -qF -- "$text" "$file"; then fail "'$text' is in $file"; fi
    done
}
# case_ FILE REQUESTED ALGORITHM RANKS DENSITY MEDIAN PREDICTED SENT [MORE]: adds a record. N =
# 1024.
case_() {
    printf '{"requested":"%s","algorithm":"%s","codec":"raw","value_bits":0,"op":"sum",' \
        "$2" "$3" >>"$1"
    printf '"type":"f32","ranks":%d,"hosts":1,"dim":1024,' "$4" >>"$1"
    awk -v d="$5" -v m="$6" -v p="$7" -v s="$8" -v more="${9:-}" 'BEGIN {
        printf "\"density\":%g,\"nnz_in\":%d,\"median_s\":%g,", d, d * 1024 + 0.5, m
        printf "\"p25_s\":%g,\"p75_s\":%g,\"predicted_s\":%s,", 0.9 * m, 1.2 * m, p
        printf "\"sent_bytes_max\":%d,\"correct\":true,\"commit\":\"abc123\",", s
        printf "\"date\":\"2026-01-0%dT00:00:00Z\",\"surprise\":[{}]%s}\n", d * 100 + 1, more
    }' >>"$1"
}

# The help, and the manual has every option.
run 0 "$RILL" report --help
cp out long
has long "usage: rill report" --output --title --help
run 0 "$RILL" help report
cmp -s out long || fail "help report differs from report --help"
awk 'length > 95 { print; bad = 1 } END { exit bad }' long >&2 || fail "lines too long"
grep '^  -' long | grep -oE -- '--[a-z][a-z-]+' | sort -u | while read -r option; do
    grep -qE -- "Fl (h , )?-${option#--}( |\$)" "$root/man/rill-report.1" ||
        fail "$option is not in the manual"
done

# ---- a sweep over two densities and two numbers of ranks, in two files that complete each other
# ---- The bound of 10 of 1024 on two ranks: log2 C(1024, 10) / 8 + 40 bytes; a hundred times that
# is sent.
bound=$(awk 'BEGIN {
    for (i = 0; i < 10; i++) b += log((1024 - i) / (i + 1)) / log(2)
    printf "%d", 100 * (b / 8 + 40) + 0.5 }')
for ranks in 2 4; do
    case_ p$ranks.jsonl mpi mpi $ranks 0.01 4e-3 null 8192
    case_ p$ranks.jsonl auto ring $ranks 0.01 2e-4 1e-4 "$bound"
    case_ p$ranks.jsonl ring ring $ranks 0.01 1e-4 1e-4 "$bound"
    case_ p$ranks.jsonl dsar dsar $ranks 0.01 5e-4 5e-4 4096
    case_ p$ranks.jsonl mpi mpi $ranks 0.05 4e-3 null 8192
    case_ p$ranks.jsonl auto dsar $ranks 0.05 5e-3 5e-3 5000
    case_ p$ranks.jsonl ring ring $ranks 0.05 6e-3 6e-3 5000
    case_ p$ranks.jsonl dsar dsar $ranks 0.05 5e-3 5e-3 5000
done
run 0 "$RILL" report p2.jsonl p4.jsonl
[[ -s report.html ]] || fail "the page is not report.html by default"
best="Best speedup over mpi: 40.0x, 100 µs against 4 ms, by ring (raw) at 2 ranks on 1 host"
auto="auto against the best fixed choice, 4 settings"
has out "16 results of 4 settings; none is marked incorrect" \
    "$best, N = 1,024, density 1 %" "$auto: 1.414x in the geometric mean, within 5 % in 2" \
    "auto lost most at 2 ranks on 1 host, N = 1,024, density 1 %: 2.00x of ring" \
    "auto took longer than mpi in 2 settings" \
    "Predicted times: median error 0 % of 12 results, 25 % where auto chose (4)" report.html
has report.html "<title>rill: measured</title>" 'name="viewport"' "prefers-color-scheme:dark" \
    "Time against density" "Time against ranks" "Bytes against the information bound" \
    "log<sub>2</sub>" "Predicted against measured time" "&plusmn;20" \
    "Speedup over <code>mpi</code>" "2 ranks on 1 host, N = 1,024" \
    "4 ranks on 1 host, N = 1,024" "N = 1,024, density 5 %, one host" "= 100.00 of the bound" \
    'class="n best">40.0×' 'class="n slow">0.80×' "abc123" \
    "2026-01-02T00:00:00Z to 2026-01-06T00:00:00Z" p2.jsonl p4.jsonl "<script>" 'class="q"'
lacks out "WIDE SPREAD"
# Quartiles that are far apart are told of.
sed '2s/"p75_s":[^,]*/"p75_s":9e-4/' p2.jsonl >wide.jsonl
run 0 "$RILL" report wide.jsonl --output wide.html
has out "WIDE SPREAD: the quartiles of 1 of 8 medians" "most of auto at 2 ranks on 1 host" "3.6x"
has wide.html "WIDE SPREAD"
for series in mpi auto ring dsar; do
    [[ $(grep -c "class=\"key[^>]*>.*</svg>$series</span>" report.html) == 3 ]] ||
        fail "$series is not in every legend"
    # Two panels by density, two by ranks; two plots of all, but mpi is not predicted.
    wanted=6
    if [[ $series == mpi ]]; then wanted=5; fi
    number=$(grep -oE "data-s=\"a[0-9]+\"[^>]*>.*</svg>$series</span>" report.html |
        grep -oE 'a[0-9]+' | head -n 1)
    got=$(grep -cE "^<g class=\"s [^\"]*\" data-s=\"$number\">" report.html)
    [[ $got == "$wanted" ]] || fail "$series is in $got plots, not $wanted"
done
# Complete by itself: nothing is fetched.
if grep -qiE "https?:|src=|@import|url\(|<link|<iframe|href=\"[^#]" report.html; then
    fail "the page refers to others"
fi
# As many tags are closed as are opened.
for tag in svg g figure section div table tr td th span p li ul text title details; do
    opened=$({ grep -oE "<${tag}[ >]" report.html || true; } | wc -l)
    closed=$({ grep -oF "</$tag>" report.html || true; } | wc -l)
    [[ $opened == "$closed" ]] || fail "$opened <$tag>, $closed </$tag>"
done
no_number='( x| y|d|width|height|transform)="[^"]*(nan|inf)'
if grep -qE "$no_number" report.html; then fail "coordinates that are no numbers"; fi

# One density: rows instead of curves. An array, on standard input, to standard output.
{ echo '['; grep '"density":0.01' p2.jsonl | paste -sd, ; echo ']'; } >array.json
run 0 "$RILL" report - -o - --title one <array.json
has out "<title>one</title>" 'class="value"' "density 1 %, allreduce sum of f32" "standard input" \
    "</html>"
lacks out "Time against ranks" "$best (standard"

# Files that measured the same are told apart, by their names or the user's; one name is one set.
# What records have in common stands once, before them, as in bench/results.
{
    echo '{"about":{"command":"x","common":{"ranks":2,"commit":"c0ffee","codec":"of-the-file"}}}'
    sed 's/"ranks":2,//; s/"commit":"[^"]*",//' p2.jsonl
} >shared.jsonl
run 0 "$RILL" report shared.jsonl -o shared.html
has shared.html c0ffee
if grep -q -e abc123 -e of-the-file shared.html; then fail "a record's own field is kept"; fi

cp p2.jsonl other.jsonl
run 0 "$RILL" report p2.jsonl other.jsonl --quiet
[[ ! -s out ]] || fail "--quiet prints"
has report.html "N = 1,024 (p2)" "N = 1,024 (other)"
run 0 "$RILL" report slow=p2.jsonl "fast net=other.jsonl" slow=p4.jsonl
has report.html "2 ranks on 1 host, N = 1,024 (slow)" "N = 1,024 (fast net)" \
    "density 1 %, one host (slow)"

# The partition that was used is no name, unless several were.
{
    sed 's/"codec"/"partition":"uniform","codec"/' p2.jsonl
    grep ring p4.jsonl | sed 's/"codec"/"partition":"balanced","codec"/'
} >parts.jsonl
run 0 "$RILL" report parts.jsonl
lacks report.html "ring uniform" "ring balanced"
sed 's/"ranks":4/"ranks":2/' parts.jsonl >both.jsonl
run 0 "$RILL" report both.jsonl
has report.html "</svg>ring uniform</span>" "</svg>ring balanced</span>" "</svg>dsar</span>"

# ---- texts of others ---------------------------------------------------------------------------
evil='<script>alert(1)</script>&\"'
case_ "a<b>&'c.jsonl" "$evil" "$evil" 2 0.01 1e-3 1e-3 900
case_ "a<b>&'c.jsonl" ring ring 2 0.02 1e-3 1e-3 900 \
    ',"correct":false,"detail":"<i>rank 1\\u001b[31m</i>"'
sed -i 's/"correct":true,\(.*"correct":false\)/\1/' "a<b>&'c.jsonl"
run 0 "$RILL" report "a<b>&'c.jsonl" --title '<b>"t"</b> & more'
has report.html "<title>&lt;b&gt;&quot;t&quot;&lt;/b&gt; &amp; more</title>" \
    "a&lt;b&gt;&amp;&#39;c.jsonl" \
    "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;" "Incorrect results" "&lt;i&gt;rank 1"
lacks report.html "<script>alert" "<i>" "<b>\"t\"" "a<b>" $'\033'
has out "2 results of 2 settings; 1 INCORRECT"
sed 's/"ring"/"r\\u001b[2Jing"/g' p2.jsonl >control.jsonl
run 0 "$RILL" report control.jsonl
lacks out $'\033'
lacks report.html $'\033'

# ---- training ----------------------------------------------------------------------------------
epoch() { # epoch FILE NUMBER LOSS SECONDS COMM SENT ACCURACY
    {
        printf '{"file":"url.bin","loss_name":"logistic","solver":"sgd","reducer":"exact",'
        printf '"ranks":4,"epoch":%d,"sent_bytes":%d,"algorithm":"x","loss":%s,' "$2" "$6" "$3"
        printf '"seconds":%s,"comm_seconds":%s,"valid_accuracy":%s,' "$4" "$5" "$7"
        printf '"valid_auc":null,"commit":"def456"}\n'
    } >>"$1"
}
for i in 1 2 3; do
    epoch dense.log $i 0.$((7 - i)) 4.0 3.0 4000000000 0.8$i
    epoch sparse.log $i 0.$((7 - i)) 1.0 0.25 10000000 0.8$i
done
run 0 "$RILL" report dense.log sparse.log -o train.html
quality="loss 0.4, accuracy 83.00 %" faster="an epoch is 4.0x faster than dense's"
has out "dense: 3 epochs in 12 s, 75 % of it communication; 12 GB sent; $quality" \
    "sparse: 3 epochs in 3 s, 25 % of it communication; 30 MB sent; $quality; $faster"
has train.html "rill: training runs" "Loss against time" "Loss against bytes sent" \
    "Accuracy against time" "Accuracy against bytes sent" "Where an epoch's time goes" "400×" \
    "12.00×" "def456" "sparse, epoch 3: loss 0.4"
lacks train.html "Time against density" "Speedup over"
# A second run in one log; no accuracy; a loss that is not finite.
{
    cat dense.log dense.log | sed 's/,"valid_accuracy":[0-9.]*//'
    sed '1s/"loss":0.6/"loss":null/' sparse.log
} >both.log
run 0 "$RILL" report both.log
has out "both: 3 epochs" "both #2: 3 epochs" "both #3: 3 epochs"
# Logs and results on one page.
run 0 "$RILL" report p2.jsonl dense.log
has report.html "Time against density" "Loss against time"

# ---- what the tool itself writes ---------------------------------------------------------------
run 0 "$RILL" bench --ranks 2 --dim 4096 --density 1%,10% --reps 3 --json bench.jsonl
run 0 "$RILL" bench reducer --ranks 2 --dim 4096 --density 1% --steps 3 --json reducer.jsonl
run 0 "$RILL" bench kernels --group codecs --reps 1 --json kernels.jsonl
run 0 "$RILL" gen url --samples 200 -o data --quiet
run 0 "$RILL" train data --ranks 2 --epochs 2 --valid 20% --log log.jsonl --quiet
run 0 "$RILL" report bench.jsonl reducer.jsonl kernels.jsonl log.jsonl -o all.html
has all.html "Time against density" "Training steps of reducers" oktopk Kernels elias_fano \
    "Loss against time" split_allgather
has out "training steps of rill bench reducer" "results of rill bench kernels" "log: 2 epochs"

# ---- errors: status 1, file and line; the old page stays, nothing else is left
# ---------------------
echo old >keep.html
refused() { # refused TEXT FILE...
    local text=$1
    shift
    run 1 "$RILL" report "$@" -o keep.html
    has err "$text"
    [[ ! -s out ]] || fail "there is something on stdout: $*"
    [[ $(cat keep.html) == old ]] || fail "the page was touched"
    [[ $(find . -name 'keep.html*' | wc -l) == 1 ]] || fail "a temporary file is left"
}
: >empty
printf ' \n\n' >blank
{ cat p2.jsonl; echo '{"requested":"ring"'; } >cut.jsonl
{ cat p2.jsonl; echo '{"requested":"ring",}'; } >garbled
head -c 700 p2.jsonl >truncated
echo '[{"requested":"ring","median_s":1,"ranks":2,"dim":8,"density":0.5},7]' >seven
printf '{"epoch":1,"loss":1,"seconds":1}\n\n"text"\n' >word
echo '{"a":1}' >unknown
printf '\xff\xfe{}' >latin
echo '{"requested":"ring","median_s":1e999,"ranks":2,"dim":8,"density":0.5}' >huge
head -c 100000 /dev/zero | tr '\0' '[' >deep
refused "'empty' is empty" empty
refused "'blank' is empty" blank
refused "cut.jsonl:10:" cut.jsonl
refused "garbled:9:" garbled
refused "truncated:$(($(wc -l <truncated) + 1)):" p4.jsonl truncated
refused "seven:1: element 1 of the array is not an object" seven
refused "word:3: '[' or '{' expected" word
refused "'unknown' has no records" unknown
refused "latin:1:" latin
refused "huge:1:" huge
refused "deep:1: maximum parsing depth" deep
refused "cannot read 'nowhere.json'" nowhere.json
refused "cannot read '.'" .
field() { # field NAME VALUE TEXT: a record with that
    sed "1s/\"$1\":[^,]*/\"$1\":$2/" p2.jsonl >field.jsonl
    refused "field.jsonl:1: '$1' $3" field.jsonl
}
field median_s '"fast"' "is not a number"
field median_s -1 "is out of range"
field ranks 0 "is out of range"
field ranks 1e300 "is out of range"
field dim null "is not a number"
field density 2 "is out of range"
echo '{"requested":"ring","median_s":1,"dim":8,"density":0.5}' >missing
refused "missing:1: 'ranks' is missing" missing
run 1 "$RILL" report p2.jsonl -o nowhere/page.html
has err "cannot write 'nowhere/page.html'"
run 1 "$RILL" report a=dense.log a=sparse.log
has err "two training runs are called 'a'"
# Extremes that are legal: one point, no time, one rank, a dimension beyond 2^53, everything.
strange='"nnz_in":99,"type":"f128","hosts":7,"value_bits":-3'
for line in '"median_s":0,"ranks":1,"dim":1,"density":0' \
    '"median_s":1e-9,"ranks":2,"dim":1e18,"density":1e-18' \
    '"median_s":1,"ranks":1000000,"dim":8,"density":1,"sent_bytes_max":0,"predicted_s":0' \
    '"median_s":1e9,"p25_s":0,"p75_s":1,"ranks":2,"dim":8,'"$strange"; do
    echo "{\"requested\":\"auto\",$line}" >extreme
    run 0 "$RILL" report extreme --quiet
    if grep -qE "$no_number" report.html; then fail "coordinates that are no numbers: $line"; fi
done

run 2 "$RILL" report
has err "which files?"
run 2 "$RILL" report p2.jsonl --titlex x
has err "did you mean '--title'?"
