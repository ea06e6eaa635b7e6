# lab/simulate: simulated ranks, on the platforms of the tree.
. "$(dirname "$0")/common.bash"
[[ $(basename "${MPIEXEC:-}") == smpirun ]] || skip "not a build for SimGrid"
build=$(cd "$(dirname "$RILL")/.." && pwd)
simulate=("$root/lab/simulate" --build "$build")

wrong() { # wrong TEXT ARGUMENT...
    local text=$1
    shift
    run 2 "${simulate[@]}" "$@"
    has "$tmp/err" "$text"
    [[ ! -s $tmp/out ]] || fail "there is something on stdout: lab/simulate $*"
}
wrong "--ranks is missing" --platform 1gbe
wrong "--platform is missing" --ranks 4
wrong "--platform: unknown 'token-ring'" --ranks 4 --platform token-ring
wrong "option '--ranks' needs an argument" --ranks
wrong "unknown option '--rank'" --rank 4
wrong "unexpected argument 'bench'" --ranks 4 --platform 1gbe bench
for ranks in 0 -1 four "" 2.5; do wrong "--ranks" --ranks "$ranks" --platform 1gbe; done
wrong "--hosts: '5' is not a number from 1 to 4" --ranks 4 --platform 1gbe --hosts 5
wrong "--hosts: 2000 are asked for, the platform has 1024" --ranks 2000 --platform 1gbe
wrong "--program: there is no" --ranks 4 --platform 1gbe --program "$tmp/none"
for poll in 0 x -1 0.0; do
    wrong "--poll: '$poll' is not" --ranks 4 --platform 1gbe --poll "$poll"
done
run 0 "$root/lab/simulate" --help
has "$tmp/out" "--platform NAME" "Exit status"

run 0 "${simulate[@]}" --ranks 6 --platform 10gbe -- --dim 5000 --reps 2 --algorithm mpi,auto,ring \
    --json "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"ranks":6'
run 0 "${simulate[@]}" --ranks 6 --hosts 2 --platform ib --no-compute -- --dim 5000 --reps 2 \
    --algorithm auto --json "$tmp/json"
all_correct "$tmp/json"

# What the planner takes the network for: 46 messages, which do not wait for each other.
run 0 "${simulate[@]}" --ranks 24 --platform 10gbe --no-compute -- --dim 5000 --reps 1 --warmup 2 \
    --algorithm split_allgather --json "$tmp/json"
all_correct "$tmp/json"
grep '"requested":"split_allgather"' "$tmp/json" | tr -s '":[],' ' ' >"$tmp/words"
took=$(number times_s "$tmp/words") predicted=$(number predicted_s "$tmp/words")
least "$(awk "BEGIN { print 2 * $took }")" "$predicted" "twice the time of 24 ranks"

# A program of one's own. Time is simulated, so that it can be asserted: 1 MB takes 8.4 ms on 1
# Gbit/s,
# 104 ms on the internet, and is much faster within a host; the latency is the platform's.
cat >"$tmp/time.c" <<'END'
#include <mpi.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
static double message(int rank, int bytes, char *data) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (rank == 0) MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(data, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (rank == 0) MPI_Recv(data, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 1e6 * (MPI_Wtime() - start);
}
int main(int argc, char **argv) {
    int rank;
    char *data = calloc(1, 1000000);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double small = message(rank, 1, data), large = message(rank, 1000000, data);
    if (rank == 0) printf("%.0f %.0f %s\n", small, large, rill_strerror(RILL_OK));
    MPI_Finalize();
    free(data);
    return argc > 1 ? atoi(argv[1]) : 0;
}
END
takes() { # takes SMALL_LEAST SMALL_MOST LARGE_LEAST LARGE_MOST OPTION...: microseconds
    local least=$1 most=$2 large_least=$3 large_most=$4 small large
    shift 4
    run 0 "${simulate[@]}" --ranks 2 "$@" --no-compute --program "$tmp/time.c"
    read -r small large _ <"$tmp/out"
    ((small >= least && small <= most)) || fail "$*: a round trip takes $small us"
    ((large >= large_least && large <= large_most)) || fail "$*: 1 MB takes $large us"
}
takes 80 90 8400 8600 --platform 1gbe
takes 40000 40400 123000 125500 --platform wan
takes 0 10 100 200 --platform 1gbe --hosts 1
run 7 "${simulate[@]}" --ranks 2 --platform 1gbe --program "$tmp/time.c" -- 7

# A program that was built before.
smpicc -O2 -I"$root/include" "$tmp/time.c" -o "$tmp/time" "$build/lib/librill.a" -lm
run 0 "${simulate[@]}" --ranks 3 --platform ib --program "$tmp/time"
echo 'int main(void) { return x; }' >"$tmp/broken.c"
run 1 "${simulate[@]}" --ranks 2 --platform 1gbe --program "$tmp/broken.c"
has "$tmp/err" "does not compile"

# The same calls in the local world, where the usual build is there: the same bytes and messages.
if [[ -x $root/build/lab/simulate_local ]]; then
    all=allgather,recursive_double,split_allgather,dsar,ring,block,hier,gtopk,oktopk,spardl
    run 0 "$root/lab/compare" --build "$build" --ranks 4 --dim 20000 --density 0.01 \
        --algorithm $all --json "$tmp/json"
    [[ $(grep -c ' same ' "$tmp/out") == 10 ]] || fail "$(cat "$tmp/out")"
fi
