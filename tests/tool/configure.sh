# scripts/configure: what was missing when a build folder was configured is found once it is
# installed, and a folder that has all of it is left alone.
. "$(dirname "$0")/common.bash"
not_simulated
command -v pkg-config >/dev/null || skip "no pkg-config"
for module in cmocka zlib; do pkg-config --exists "$module" || skip "no $module"; done

# A pkg-config that knows only what rill cannot do without: a machine before the installation.
mkdir "$tmp/bare"
cp "$(pkg-config --variable=pcfiledir jansson)/jansson.pc" "$tmp/bare"
build=$tmp/build
run 0 env PKG_CONFIG_LIBDIR="$tmp/bare" "$root/scripts/configure" "$build"
has "$build/configure.log" "cmocka was not found: the unit tests are not built" "zlib was not found"
has "$build/missing" cmocka zlib
run 1 env -u RILL_RESULTS "$root/scripts/test" "$build" --parts unit # a count of its own
has "$tmp/out" "FAIL  test_status" "not built" "0 passed"
# Their target says why it fails.
status=0
"${CMAKE:-cmake}" --build "$build" --target unit_tests >"$tmp/out" 2>&1 || status=$?
((status > 0)) || fail "unit_tests are built without cmocka"
has "$tmp/out" "libcmocka-dev"

touch -d '2000-01-01' "$build/configure.log"
run 0 env PKG_CONFIG_LIBDIR="$tmp/bare" "$root/scripts/configure" "$build"
[[ $build/configure.log -ot $tmp/bare ]] || fail "configured again, with nothing new"

run 0 "$root/scripts/configure" "$build"
if grep -qE '^(cmocka|zlib)$' "$build/missing"; then fail "what is installed now was not found"; fi
run 0 "${CMAKE:-cmake}" --build "$build" --target help
grep -q unit_test_status "$tmp/out" || fail "no unit tests after the second configuration"
grep -q RILL_HAVE_ZLIB=1 "$build/compile_commands.json" ||
    fail "no zlib after the second configuration"

touch -d '2000-01-01' "$build/configure.log"
run 0 "$root/scripts/configure" "$build"
[[ $build/configure.log -ot $tmp/bare ]] || fail "configured again, with nothing new"

# Another MPI in the same folder is another MPI in all of it.
command -v mpicc.mpich >/dev/null || exit 0
command -v mpicc.openmpi >/dev/null || exit 0
for mpi in mpich openmpi; do
    run 0 env MPICC=mpicc.$mpi MPIEXEC=mpiexec.$mpi "$root/scripts/configure" "$build"
    has "$build/compile_commands.json" "/$mpi"
    other=$([[ $mpi == mpich ]] && echo openmpi || echo mpich)
    if grep -q "/include/$other\|/$other/include" "$build/compile_commands.json"; then
        fail "after mpicc.$mpi: still $other"
    fi
done
