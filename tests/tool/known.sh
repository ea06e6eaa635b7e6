# Every test of the tree is a case of scripts/test, and every case is one of ctest: a program that
# no list names would be built, and never run.
. "$(dirname "$0")/common.bash"
not_simulated
build=$(cd "$(dirname "$RILL")/.." && pwd)
[[ -f $build/CMakeCache.txt ]] || skip "this is not a build folder"

list() { "$root/scripts/test" "$build" --list "$@" | cut -f 4; }
list >"$tmp/quick"
list --long >"$tmp/long"
sort -u "$tmp/quick" "$tmp/long" >"$tmp/cases"
named() { # named PATTERN FILE: a case of that name
    grep -qE "^$1( |,|$)" "$tmp/cases" || fail "no case of scripts/test runs $2"
}
cd "$root" || exit 1
for file in tests/unit/test_*.c; do named "$(basename "$file" .c)" "$file"; done
for file in tests/tool/*.sh; do named "tool/$(basename "$file" .sh)" "$file"; done
# Without MPI there are not all of these.
if [[ -x $build/tests/test_failures ]]; then
    for file in tests/mpi/test_*.c tests/space/test_*.c; do
        named "$(basename "$file" .c)" "$file"
    done
fi
for file in tests/world/test_*.c; do
    grep -q "$(basename "$file" .c)\"" scripts/test || fail "scripts/test does not run $file"
done
# Of runs.txt, what each line names is there.
while read -r name _; do
    if [[ -z $name || $name == \#* ]]; then continue; fi
    [[ -f tests/mpi/test_$name.c || -f tests/space/test_$name.c ]] ||
        fail "tests/mpi/runs.txt has $name, which is no program"
done <tests/mpi/runs.txt

command -v ctest >/dev/null || skip "no ctest"
(cd "$build" && ctest -N) | sed -n 's/^ *Test *#[0-9]*: //p' | sort -u >"$tmp/known"
diff "$tmp/cases" "$tmp/known" || fail "ctest does not know the cases of scripts/test"
