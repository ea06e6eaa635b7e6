# long: rill report in a browser: the page renders in light and dark; on a phone nothing sticks out.
. "$(dirname "$0")/common.bash"
not_simulated
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip "there is no chromium"
cd "$tmp" || exit 1
chrome() { # chrome SCHEME WIDTH OPTION... PAGE; in blink's settings 0 is dark, 1 is light
    local scheme=$1 width=$2
    shift 2
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --hide-scrollbars --no-first-run --user-data-dir="$tmp/profile" \
        --blink-settings=preferredColorScheme="$scheme" --window-size="$width,1400" \
        "$@" 2>"$tmp/browser"
}
echo '<title>here</title>' >probe.html
chrome 1 800 --dump-dom "file://$tmp/probe.html" >probe || true
grep -q '<title>here</title>' probe || skip "$browser does not start: $(tail -n 1 browser)"

# Results with long names, a training log and steps: every kind of section.
run 0 "$RILL" bench --ranks 2 --dim 65536 --density 0.1%,1%,10% --reps 3 --json bench.jsonl
run 0 "$RILL" bench reducer --ranks 2 --dim 4096 --density 1% --steps 3 --json reducer.jsonl
run 0 "$RILL" bench kernels --group codecs --reps 1 --json kernels.jsonl
epoch() { # epoch NUMBER SECONDS COMM SENT
    printf '{"file":"a-rather-long-name-of-a-data-set.bin","epoch":%d,"loss":0.%d,' "$1" $((7 - $1))
    printf '"seconds":%d,"comm_seconds":%s,"sent_bytes":%d,' "$2" "$3" "$4"
    printf '"valid_accuracy":0.8%d}\n' "$1"
}
for i in 1 2 3; do
    epoch $i 2 0.5 1000000 >>dense.log
    epoch $i 1 0.2 1000 >>sparse.log
done
run 0 "$RILL" report "a_network_with_quite_a_long_name=bench.jsonl" reducer.jsonl kernels.jsonl \
    dense.log sparse.log -o page.html

# What the browser made of it, as told by a copy: widths, background, errors, markers of some size.
# It is shown in a frame, since windows have a least width.
{
    sed '$d' page.html
    cat <<'HTML'
<script>
onerror = function () { window.wrong = 1; };
onload = function () {
    var wide = 0, seen = 0, tips = 0;
    var parts = 'main > *, section > *, figure, svg.plot, svg.plot text';
    document.querySelectorAll(parts).forEach(function (e) {
        var box = e.getBoundingClientRect();
        if (box.right > innerWidth + 1 || box.left < -1) {
            wide++;
            window.which = e.tagName + ' ' + e.textContent.slice(0, 60);
        }
    });
    document.querySelectorAll('svg.plot .m').forEach(function (m) {
        seen += m.getBoundingClientRect().width > 0;
    });
    tips = document.querySelectorAll('[data-tip]').length;
    parent.postMessage('width ' + innerWidth +
        ' page ' + document.documentElement.scrollWidth + ' outside ' + wide +
        ' markers ' + (seen > 20) + ' tips ' + (tips > 20) + ' errors ' + (window.wrong || 0) +
        ' back ' + getComputedStyle(document.body).backgroundColor + ' last ' + window.which, '*');
};
</script></body></html>
HTML
} >inner.html
for width in 390 1280; do
    cat >probe.html <<HTML
<iframe src="inner.html" style="border:0;width:${width}px;height:1400px"></iframe>
<script>onmessage = function (e) { document.title = e.data; };</script><title></title>
HTML
    for scheme in 0 1; do
        chrome "$scheme" 1400 --virtual-time-budget=5000 --dump-dom "file://$tmp/probe.html" >dom ||
            fail "$browser: $(tail -n 3 browser)"
        grep -oE '<title>width[^<]*' dom | tail -n 1 >title || fail "the script did not run"
        cat title
        has title "width $width page $width outside 0 markers true tips true errors 0"
        back="255, 255, 255"
        if [[ $scheme == 0 ]]; then back="20, 23, 26"; fi
        has title "back rgb($back)"
        chrome "$scheme" "$width" --screenshot="$tmp/shot-$width-$scheme.png" \
            "file://$tmp/page.html" >/dev/null || fail "$browser: $(tail -n 3 browser)"
        # An empty page of that size takes a few kB.
        [[ $(wc -c <"shot-$width-$scheme.png") -gt 40000 ]] ||
            fail "the picture at $width is nearly empty"
    done
    if cmp -s "shot-$width-0.png" "shot-$width-1.png"; then fail "light and dark look the same"; fi
done
if [[ -n ${RILL_SHOTS:-} ]]; then cp shot-*.png page.html "$RILL_SHOTS"; fi
