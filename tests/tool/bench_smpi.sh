# rill bench in a simulation: the same code, built with SimGrid's smpicc.
. "$(dirname "$0")/common.bash"
[[ $(basename "${MPIEXEC:-}") == smpirun ]] || skip "not a build for SimGrid"

run 0 "$root/scripts/mpirun-test" 4 "$RILL" bench --dim 5000 --reps 2 --json "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"ranks":4'
