# long: the site of docs/: builds without a warning, loads nothing from the network, and fits a
# desktop and a phone.
. "$(dirname "$0")/common.bash"
not_simulated
command -v mkdocs >/dev/null || skip "no mkdocs"

cd "$root" || exit 1
run 0 mkdocs build --strict --quiet --site-dir "$tmp/site"
for page in index guide/index guide/first-sum reference/c reference/tool results/index \
    internals/index; do
    [[ -s $tmp/site/$page.html ]] || fail "there is no $page.html"
done
has "$tmp/site/reference/c.html" 'id="rill_allreduce"'
[[ -s $tmp/site/examples/logistic.c ]] ||
    fail "files of the tree that pages link to are not in the site"
loaded='<(script|link|img)[^>]+(src|href)="?https?://[^" >]+'
if grep -rhoE "$loaded" --include='*.html' "$tmp/site" >&2; then
    fail "a page loads something from the network"
fi

command -v chromium >/dev/null || exit 0
# A frame of the width, and the page says how much wider it is: chromium's own window has a least
# width.
for page in index guide/troubleshooting reference/c results/papers; do
    for width in 390 1280; do
        cat >"$tmp/frame.html" <<H
<body><iframe id="f" src="file://$tmp/site/$page.html"
style="width:${width}px;height:900px;border:0"></iframe><p id="wide"></p>
<script>onload = () => { const d = document.getElementById("f").contentDocument.documentElement;
document.getElementById("wide").textContent = "wider by " + (d.scrollWidth - d.clientWidth); };
</script>
H
        chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files \
            --user-data-dir="$tmp/chromium" --virtual-time-budget=4000 \
            --dump-dom "file://$tmp/frame.html" >"$tmp/dom" 2>"$tmp/err" ||
            skip "chromium does not run here"
        has "$tmp/dom" "wider by 0"
    done
done
