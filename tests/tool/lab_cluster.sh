# lab/cluster: two emulated hosts, the command's exit status, and nothing left behind.
. "$(dirname "$0")/common.bash"
not_simulated
cluster=$root/lab/cluster

# Wrong usage is found before anything is needed of the machine.
wrong() { # wrong TEXT ARGUMENT...
    local text=$1
    shift
    run 2 "$cluster" "$@"
    has "$tmp/err" "$text"
    [[ ! -s $tmp/out ]] || fail "there is something on stdout: lab/cluster $*"
}
wrong "--hosts is missing" --rate 1gbit -- true
wrong "--rate is missing" --hosts 2 -- true
wrong "there is no command after --" --hosts 2 --rate 1gbit
wrong "there is no program 'no-such-program'" --hosts 2 --rate 1gbit -- no-such-program
wrong "unknown option '--host'" --host 2
wrong "unexpected argument 'true'" --hosts 2 --rate 1gbit true
wrong "option '--rate' needs an argument" --hosts 2 --rate
for hosts in 0 -1 two 201 "" 1.5; do
    wrong "--hosts" --hosts "$hosts" --rate 1gbit -- true
done
for rate in 0gbit 1 gbit 1tbit -1gbit 1.gbit 10kbit 1000gbit "1 gbit"; do
    wrong "--rate" --hosts 2 --rate "$rate" -- true
done
wrong "--slow: '1' is not HOST:RATE" --hosts 2 --rate 1gbit --slow 1 -- true
wrong "--slow: '2' is not a number from 0 to 1" --hosts 2 --rate 1gbit --slow 2:1mbit -- true
wrong "--ranks-per-host: '0' is not" --hosts 2 --rate 1gbit --ranks-per-host 0 -- true
wrong "--mpi: unknown 'lam'" --hosts 2 --rate 1gbit --mpi lam -- true
wrong "--tolerance: 'x' is not" --hosts 2 --rate 1gbit --tolerance x -- true
run 0 "$cluster" --help
has "$tmp/out" "--hosts H" "--slow HOST:RATE" "Exit status"

# Whether this machine can do it, and whether it says so where it cannot.
status=0
"$cluster" --hosts 1 --rate 1gbit -- true >"$tmp/out" 2>"$tmp/err" || status=$?
if ((status == 77)); then
    has "$tmp/err" "lab/cluster: "
    skip "$(<"$tmp/err")"
fi
[[ $status == 0 ]] || { cat "$tmp/err" >&2 && fail "one host: status $status"; }
mkdir "$tmp/bare"
for tool in bash dirname ldd cat printf tr true; do ln -s "$(type -P $tool)" "$tmp/bare"; done
sed 's|^PATH=.*||' "$cluster" >"$tmp/cluster"
run 77 env PATH="$tmp/bare" bash "$tmp/cluster" --hosts 2 --rate 1gbit -- true
has "$tmp/err" "install iproute2"

# What a cluster could leave: its processes (they have $tmp in their arguments), network namespaces,
# mounts, network devices.
left_behind() { # left_behind WHAT
    local processes=""
    for ((i = 0; i < 50; i++)); do # the kernel ends them by itself, but needs a moment
        processes=$(pgrep -f "$tmp/" || true)
        if [[ -z $processes ]]; then break; fi
        sleep 0.1
    done
    [[ -z $processes ]] || fail "$1: processes are left: $processes"
    [[ $(ip netns list) == "$names_before" ]] || fail "$1: network namespaces are left"
    [[ $(mount | wc -l) == "$mounts_before" ]] || fail "$1: mounts are left"
    [[ $(ip -o link | wc -l) == "$links_before" ]] || fail "$1: network devices are left"
}
PATH=$PATH:/usr/sbin:/sbin
names_before=$(ip netns list)
mounts_before=$(mount | wc -l)
links_before=$(ip -o link | wc -l)

# Two hosts, each with a rank, over the emulated link: the bytes are those of its counters, and more
# than a rank's own account by the packets' headers and what mpirun says to its daemons.
# The tolerance is wide: the machine may be busy with other tests.
run 0 "$cluster" --hosts 2 --rate 200mbit --tolerance 100 --bytes "$tmp/bytes" -- "$RILL" bench \
    --algorithm dense --no-baseline --dim 2^18 --density 1% --warmup 0 --reps 4 --json "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"ranks":2' '"hosts":2'
has "$tmp/out" "2 ranks on 2 hosts"
has "$tmp/err" "64 KiB" "MiB, all links at once" "packets dropped"
[[ $(wc -l <"$tmp/bytes") == 2 ]] || fail "not one line per host"
sent=$(sed -n 's/.*"host":"h1","sent_bytes":\([0-9]*\).*/\1/p' "$tmp/bytes")
((sent > 4 * 4 * 262144)) || fail "of four sums of 1 MiB, $sent bytes crossed the link"
left_behind "success"

# The same over UCX, where there is some: ranges of dense sums go in pieces between hosts.
status=0
"$cluster" --hosts 2 --rate 1gbit --no-verify --quiet -- "$RILL" bench --link ucx --no-baseline \
    --algorithm dense,split_allgather --dim 2^21 --density 1% --warmup 0 --reps 1 \
    --json "$tmp/ucx" >"$tmp/out" 2>"$tmp/err" || status=$?
if ! grep -q "built without UCX" "$tmp/err"; then
    [[ $status == 0 ]] || { cat "$tmp/err" >&2 && fail "over UCX: status $status"; }
    all_correct "$tmp/ucx"
    has "$tmp/ucx" '"ranks":2' '"hosts":2' '"link":"ucx"'
fi

# Ranks of one host meet in memory: nothing of it crosses a link.
run 0 "$cluster" --hosts 1 --rate 200mbit --ranks-per-host 2 --bytes "$tmp/bytes" -- "$RILL" bench \
    --algorithm dense --no-baseline --dim 2^18 --density 1% --warmup 0 --reps 4 --quiet
sent=$(sed -n 's/.*"sent_bytes":\([0-9]*\).*/\1/p' "$tmp/bytes")
((sent < 262144)) || fail "two ranks of one host: $sent bytes crossed the link"

# Names and statuses.
run 0 "$cluster" --hosts 2 --rate 1gbit --ranks-per-host 2 --no-verify --quiet -- hostname
[[ $(sort "$tmp/out" | paste -sd ' ') == "h0 h0 h1 h1" ]] || fail "the hosts are: $(<"$tmp/out")"
if grep "lab/cluster" "$tmp/err"; then fail "--quiet is not"; fi
# shellcheck disable=SC2016
run 0 env COLOUR=green "$cluster" --hosts 2 --rate 1gbit --no-verify -- \
    sh -c 'test "$COLOUR" = green && test "$1" = "a b" && test -z "$LAB_HOSTS"' sh "a b"
run 7 "$cluster" --hosts 2 --rate 1gbit --no-verify -- sh -c 'exit 7'
left_behind "failure"
run 3 "$cluster" --hosts 2 --rate 1gbit --tolerance 0 -- touch "$tmp/started"
has "$tmp/err" "the rate is off by more than 0 %"
[[ ! -e $tmp/started ]] || fail "the command ran although the rate was off"

# Ended by a signal while the ranks run. A shell without job control makes its children deaf to
# SIGINT.
printf '#!/bin/sh\n: >"%s/running"\nsleep 60\n' "$tmp" >"$tmp/nap"
chmod +x "$tmp/nap"
set -m
for signal in INT TERM KILL; do
    rm -f "$tmp/running"
    "$cluster" --hosts 2 --rate 1gbit --no-verify -- "$tmp/nap" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    for ((i = 0; i < 100; i++)); do
        if [[ -e $tmp/running ]]; then break; fi
        sleep 0.1
    done
    [[ -e $tmp/running ]] || fail "$signal: the command did not start"
    kill -s $signal $pid
    status=0
    wait $pid 2>/dev/null || status=$?
    [[ $status == $((128 + $(kill -l $signal))) ]] || fail "$signal: status $status"
    left_behind "$signal"
done
set +m

# The other MPI: over the link as well, though it could see that all hosts are one machine.
if ! type -P mpiexec.hydra mpicc.mpich >/dev/null; then exit 0; fi
cat >"$tmp/sum.c" <<'END'
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int n = 1 << 20, ranks;
    float *in = calloc((size_t)n, sizeof *in), *out = malloc((size_t)n * sizeof *out);
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return ranks == 2 ? 0 : 9;
}
END
mpicc.mpich -O2 "$tmp/sum.c" -o "$tmp/sum"
wrong "is linked with mpich, not openmpi" --mpi openmpi --hosts 2 --rate 1gbit -- "$tmp/sum"
run 0 "$cluster" --hosts 2 --rate 1gbit --no-verify --bytes "$tmp/bytes" -- "$tmp/sum"
sent=$(sed -n 's/.*"host":"h1","sent_bytes":\([0-9]*\).*/\1/p' "$tmp/bytes")
((sent > 4194304)) || fail "MPICH: of a sum of 4 MiB, $sent bytes crossed the link"
run 0 "$cluster" --hosts 1 --ranks-per-host 2 --rate 1gbit --bytes "$tmp/bytes" -- "$tmp/sum"
run 5 "$cluster" --mpi mpich --hosts 2 --rate 1gbit --no-verify -- sh -c 'exit 5'
left_behind "MPICH"
