# Ranks that the tool starts by itself, without MPI: processes over UCX, threads of one process,
# other hosts by a stand-in for ssh, tasks of a batch system. A rank that dies ends all, and so
# does a signal.
. "$(dirname "$0")/common.bash"
not_simulated
first=$("$RILL" bench --link ucx --ranks 2 --dim 100 --reps 1 2>&1 || true)
if [[ $first == *"built without UCX"* ]]; then skip "no UCX"; fi
export RILL_PROFILE=none
if "$RILL" info | grep "^MPI library *without MPI" >/dev/null; then mpi=""; else mpi=mpi; fi

for link in ucx local; do
    run 0 "$RILL" bench --link "$link" --ranks 3 --dim 5000 --reps 2 --algorithm auto,ring \
        --json "$tmp/json"
    all_correct "$tmp/json"
    [[ $(grep -c "\"link\":\"$link\"" "$tmp/json") == 2 ]] || fail "the records name no link"
    [[ $(grep -c "3 ranks on 1 host" "$tmp/out") == 1 ]] || fail "more than one rank speaks"
    run 2 "$RILL" bench --link "$link" --ranks 2 --dim x
    [[ $(grep -c -- "--dim: 'x' is not" "$tmp/err") == 1 ]] || fail "no message, or more than one"
    run 2 "$RILL" bench --link "$link" --ranks 2 --dim 1000 --algorithm mpi
    has "$tmp/err" "--algorithm: mpi: "
    run 1 env RILL_BENCH_FAULT=1 "$RILL" bench --link "$link" --ranks 2 --dim 1000 --reps 1 \
        --algorithm ring
    has "$tmp/err" "incorrect"
done
run 0 "$RILL" bench reducer --link local --dim 2000 --steps 2 --algorithm oktopk --quiet
run 2 "$RILL" bench reducer --memory disk
has "$tmp/err" "--memory: 'disk' is not one"
run 1 env RILL_CUDA_LIBRARY=no-such.so "$RILL" bench reducer --link local --memory cuda
has "$tmp/err" "bench reducer: --memory cuda: rank 0: " "no-such.so could not be loaded"
emulated=$(dirname "$RILL")/../tests/cuda/librill_cuda_emulated.so
if [[ -f $emulated ]]; then
    run 0 env RILL_CUDA_LIBRARY="$emulated" "$RILL" bench reducer --link local --memory cuda \
        --dim 2000 --steps 2 --algorithm oktopk,dense --json "$tmp/cuda.json"
    [[ $(grep -c '"memory":"cuda"' "$tmp/cuda.json") == 4 ]] || fail "the records name no memory"
    [[ $(grep -c '"correct":true' "$tmp/cuda.json") == 4 ]] || fail "something was lost"
fi
run 0 "$RILL" bench overlap --link local --dim 2000 --reps 2 --progress poll --quiet
run 2 "$RILL" bench --link local --hostfile x
run 2 "$RILL" bench --link tcp
has "$tmp/err" "--link: 'tcp' is not mpi, ucx or local"
if [[ -z $mpi ]]; then
    run 2 "$RILL" bench --link mpi
    has "$tmp/err" "built without MPI"
fi

# A model does not depend on the link.
awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) { s = 0; line = ""
    for (j = 1; j <= 60; j++) if (rand() < 0.2) {
        v = int(rand() * 9) + 1; line = line " " j ":" v; s += (j % 3 - 1) * v }
    print (s > 0 ? "+1" : "-1") line } }' >"$tmp/data"
for way in "--solver sgd" "--solver scd" "--solver newton" "--reducer oktopk --density 0.2" \
    "--dense --solver scd"; do
    for link in local ucx $mpi; do
        # shellcheck disable=SC2086
        run 0 "$RILL" train "$tmp/data" --link "$link" --ranks 3 --epochs 2 --C 1 --valid 20% $way \
            --quiet --model "$tmp/$link"
        cmp -s "$tmp/local" "$tmp/$link" || fail "$way: other bits over $link"
    done
done
for link in local ucx $mpi; do
    run 0 "$RILL" predict "$tmp/data" --link "$link" --ranks 3 --model "$tmp/local" \
        -o "$tmp/labels.$link"
    cmp -s "$tmp/labels.local" "$tmp/labels.$link" || fail "other predictions over $link"
done
train=("$RILL" train "$tmp/data" --ranks 2 --C 1 --quiet)
run 0 "${train[@]}" --link ucx --epochs 2 --checkpoint "$tmp/check"
run 0 "${train[@]}" --link ucx --epochs 4 --checkpoint "$tmp/check" --resume --model "$tmp/resumed"
run 0 "${train[@]}" --link local --epochs 4 --model "$tmp/whole"
cmp -s "$tmp/whole" "$tmp/resumed" || fail "the resumed run ends in other bits"
run 1 "$RILL" train "$tmp/none" --link ucx --ranks 3
[[ $(grep -c "rill: train: .*none" "$tmp/err") == 1 ]] || fail "no message, or more than one"

# Tasks of a batch system.
free='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
port=$(python3 -c "$free")
tasks() { # tasks RANK SIZE WORD...: three processes with their place in those variables
    local rank=$1 size=$2 i pids=()
    shift 2
    for i in 0 1 2; do
        env RILL_RENDEZVOUS="127.0.0.1:$port" "$rank=$i" "$size=3" "$RILL" "$@" \
            >"$tmp/task.$i" 2>&1 &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "a task failed: $(cat "$tmp"/task.*)"; done
}
tasks SLURM_PROCID SLURM_NTASKS bench --dim 1000 --reps 1 --algorithm auto
has "$tmp/task.0" "ucx" "3 ranks on 1 host"
[[ ! -s $tmp/task.1 && ! -s $tmp/task.2 ]] || fail "more than one task speaks"
tasks OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE train "$tmp/data" --epochs 2 --C 1 --quiet

# Other hosts: ssh is a script here that runs the words on this one, without this environment.
cat >"$tmp/ssh" <<END
#!/bin/sh
echo "\$1" >>"$tmp/hosts.used"
exec env -i PATH="$PATH" sh -c "\$2"
END
chmod +x "$tmp/ssh"
export RILL_SSH=$tmp/ssh
printf '# two hosts\n127.0.0.2 slots=2\n\n127.0.0.3:1 # one rank\n' >"$tmp/hosts"
run 0 env RILL_CODEC=bitpack "$RILL" bench --link ucx --hostfile "$tmp/hosts" --dim 5000 \
    --reps 1 --algorithm ring --json "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"ranks":3' '"codec":"bitpack"'
used=$(sort "$tmp/hosts.used" | tr '\n' ' ')
[[ $used == "127.0.0.2 127.0.0.3 " ]] || fail "not one ssh for each host: $used"
run 2 "$RILL" bench --link ucx --hostfile "$tmp/hosts" --ranks 4
has "$tmp/err" "4 are more than the 3 slots"
echo "127.0.0.2 slot=2" >"$tmp/bad"
run 1 "$RILL" bench --link ucx --hostfile "$tmp/bad"
has "$tmp/err" "bad:1: "
run 1 env RILL_SSH=false "$RILL" bench --link ucx --hostfile "$tmp/hosts"

# Ends: a rank is killed, the launcher gets a signal, the launcher is killed.
offspring() { # of a process, all generations
    local child
    for child in $(pgrep -P "$1" || true); do
        echo "$child"
        offspring "$child"
    done
}
ranks_of() { # the processes of a job that are ranks
    local pid
    for pid in $(offspring "$1"); do
        if grep -qzs '^RANK=' "/proc/$pid/environ"; then echo "$pid"; fi
    done
}
[[ -r /proc/self/environ ]] || skip "ranks are found through /proc"
for hosts in "--ranks 3" "--hostfile $tmp/hosts"; do
    for end in rank TERM KILL; do
        # shellcheck disable=SC2086
        "$RILL" bench --link ucx $hosts --dim 2^16 --reps 1000000 --algorithm ring --quiet \
            >"$tmp/out" 2>"$tmp/err" &
        job=$!
        for ((i = 0; i < 200; i++)); do
            mapfile -t ranks < <(ranks_of "$job")
            if ((${#ranks[@]} == 3)); then break; fi
            sleep 0.1
        done
        ((${#ranks[@]} == 3)) || fail "${#ranks[@]} ranks, not 3: $(cat "$tmp/err")"
        sleep 0.5
        if [[ $end == rank ]]; then kill -9 "${ranks[1]}"; else kill "-$end" "$job"; fi
        status=0
        wait "$job" 2>/dev/null || status=$?
        for ((i = 0; i < 100; i++)); do
            alive=0
            for pid in "${ranks[@]}"; do
                if [[ $(ps -o stat= -p "$pid" || true) == [^Z]* ]]; then alive=1; fi
            done
            if ((!alive)); then break; fi
            sleep 0.1
        done
        ((!alive)) || fail "$hosts, $end: ranks are left after 10 s"
        case $end in
        rank)
            [[ $status == 1 ]] || fail "status $status, not 1"
            grep -q "rank . was ended by signal 9" "$tmp/err" || fail "$(cat "$tmp/err")"
            ;;
        TERM) [[ $status == 143 ]] || fail "status $status, not that of the signal" ;;
        esac
    done
done
