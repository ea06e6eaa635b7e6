# The pages: links, files, names and options that they name are there; pages with a source are
# current; the guide's first program runs.
. "$(dirname "$0")/common.bash"
not_simulated
command -v python3 >/dev/null || skip "no python3"
export PYTHONDONTWRITEBYTECODE=1

run 0 "$root/docs/tools/reference" --check
run 0 "$root/docs/tools/settings" --check "$RILL"
run 0 "$root/docs/tools/check" "$RILL"
grep -qE '^[0-9]+ pages: ' "$tmp/out" || fail "no count of pages"

# What the tool lists is in the reference.
run 0 "$RILL" info --json
python3 - "$tmp/out" "$root/docs/reference" <<'P' || fail "the reference is not complete"
import json, pathlib, re, sys
info = json.load(open(sys.argv[1]))
names = ("algorithms.md", "reducers.md", "settings.md")
pages = {name: pathlib.Path(sys.argv[2], name).read_text() for name in names}
listed = [row["name"] for rows in info["algorithms"].values() for row in rows]
listed += [row["name"] for table in ("codecs", "selections") for row in info[table]]
assert len(listed) > 20, listed
described = pages["algorithms.md"] + pages["reducers.md"]
missing = [name for name in listed if f"`{name}`" not in described]
variables = set(re.findall(r"RILL_[A-Z_]+", json.dumps(info)))
assert "RILL_ALGORITHM" in variables, info.keys()
missing += sorted(name for name in variables if f"`{name}`" not in pages["settings.md"])
sys.exit(f"not in docs/reference: {', '.join(missing)}" if missing else 0)
P

# The check itself: a copy of a few files with one fault of each kind, and none is overlooked.
mkdir -p "$tmp/tree/docs/tools" "$tmp/tree/include/rill" "$tmp/tree/man"
cp "$root/docs/tools/check" "$root/docs/tools/settings" "$tmp/tree/docs/tools/"
cp "$root/Makefile" "$tmp/tree/"
cp "$root/include/rill/rill.h" "$tmp/tree/include/rill/"
cat >"$tmp/tree/docs/page.md" <<'M'
# A page
See [nothing](missing.md), [no heading](page.md#not-there) and `src/no/such_file.c`.
`rill_no_such_call` reads `RILL_NO_SUCH_VARIABLE`; `make no-such-target`.
- a list without an empty line

    rill no-such-command --help
    rill bench --no-such-option 3
M
mkdir "$tmp/tree/docs/reference"
sed 's/`RILL_CODEC`/`RILL_CODES`/' "$root/docs/reference/settings.md" \
    >"$tmp/tree/docs/reference/settings.md"
run 1 "$tmp/tree/docs/tools/settings" --check "$RILL"
rm -r "$tmp/tree/docs/reference"
echo '.Xr rill-nothing 1' >"$tmp/tree/man/rill.1"
run 1 "$tmp/tree/docs/tools/check" "$RILL"
has "$tmp/out" "docs/page.md:2: the link to missing.md leads nowhere" \
    "page.md#not-there: there is no such heading" "there is no src/no/such_file.c" \
    "docs/page.md:3: there is no rill_no_such_call" "there is no RILL_NO_SUCH_VARIABLE" \
    "make has no target no-such-target" "docs/page.md:4: a list or a table needs an empty line" \
    "rill has no command no" \
    "rill bench has no option --no-such-option" "man/rill.1:1: there is no page rill-nothing(1)"

# The first program of the guide, as it stands there, prints what the guide says.
build=$(cd "$(dirname "$RILL")/.." && pwd)
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
[[ -f $build/CMakeCache.txt && -e $build/lib/librill.so ]] || exit 0
[[ -z $(cached RILL_SANITIZE) || $(cached RILL_SANITIZE) == OFF ]] || exit 0
compiler=$(cached MPI_C_COMPILER)
[[ -x $compiler ]] || exit 0
guide=$root/docs/guide/first-sum.md
block() { awk -v kind="$1" '$0 == "```" kind { on = 1; next } on && /^```/ { exit } on' "$guide"; }
block c >"$tmp/sum.c"
block text >"$tmp/expected"
[[ -s $tmp/expected ]] || fail "the guide does not say what is printed"
run 0 "$compiler" -std=c11 -Wall -Wextra -Werror -I"$root/include" "$tmp/sum.c" -o "$tmp/sum" \
    -L"$build/lib" -Wl,-rpath,"$build/lib" -lrill
run 0 "$root/scripts/mpirun-test" 3 "$tmp/sum"
diff "$tmp/expected" "$tmp/out" || fail "the guide's program prints something else"
