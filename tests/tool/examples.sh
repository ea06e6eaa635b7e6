# The examples: short, built by the MPI compiler against the build tree, and the loss falls.
. "$(dirname "$0")/common.bash"
not_simulated
build=$(cd "$(dirname "$RILL")/.." && pwd)
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
[[ -f $build/CMakeCache.txt ]] || skip "$build is not a build folder"
[[ -z $(cached RILL_SANITIZE) || $(cached RILL_SANITIZE) == OFF ]] || skip "a build with sanitizers"
[[ -e $build/lib/librill.so ]] || skip "there is no shared library in $build/lib"
compiler=$(cached MPI_C_COMPILER)
[[ -x $compiler ]] || skip "the build does not name an MPI compiler"

for name in logistic network; do
    source=$root/examples/$name.c
    (($(wc -l <"$source") < 60)) || fail "$name.c has 60 lines or more"
    run 0 "$compiler" -std=c11 -O2 -Wall -Wextra -Werror -I"$root/include" "$source" \
        -o "$tmp/$name" -L"$build/lib" -Wl,-rpath,"$build/lib" -lrill -lm
    for algorithm in dense auto oktopk gtopk spardl allgather; do
        run 0 "$root/scripts/mpirun-test" 2 "$tmp/$name" "$algorithm" 200
        awk '{ for (i = 1; i < NF; i++) if ($i == "loss") loss[++n] = $(i + 1) }
            END { exit !(n == 5 && loss[1] > 0.1 && loss[5] < loss[1] / 2) }' "$tmp/out" || {
            cat "$tmp/out" >&2
            fail "$name $algorithm: the loss does not fall to a half"
        }
    done
    run 1 "$root/scripts/mpirun-test" 2 "$tmp/$name" no-such-algorithm
    has "$tmp/err" "$name: " "no-such-algorithm"
done
