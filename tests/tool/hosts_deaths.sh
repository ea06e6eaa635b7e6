# long: deaths across emulated hosts: a rank of another host is killed, and a host loses its network
# The survivors know (of a process at once; of a host after the keepalive's time, 25 s), shrink, go
# on, and have the same bits; the rank whose host is cut off is told that it is fewer than half.
. "$(dirname "$0")/common.bash"
not_simulated
if [[ ${1:-} != inside ]]; then
    PATH=$PATH:/usr/sbin:/sbin
    python=/usr/bin/python3
    PYTHONPATH=$root/python RILL_LIBRARY=${RILL_LIBRARY:-$(dirname "$RILL")/../lib/librill.so}
    RILL_LIBRARY=$(realpath "$RILL_LIBRARY")
    export PATH PYTHONPATH RILL_LIBRARY RILL python
    for tool in ip unshare setpriv; do type -P $tool >/dev/null || skip "there is no '$tool'"; done
    $python -c 'import numpy' 2>/dev/null || skip "$python has no numpy"
    first=$("$RILL" bench --link ucx --ranks 1 --dim 100 --nnz 1 --reps 1 2>&1) || true
    if [[ $first == *"built without UCX"* ]]; then skip "no UCX"; fi
    apart=(--mount --net --uts --ipc --pid --fork --kill-child --mount-proc)
    if ((EUID != 0)); then apart=(--user --map-root-user "${apart[@]}"); fi
    unshare "${apart[@]}" true 2>/dev/null || skip "this machine makes no namespaces"
    # With the first process of the namespace all others go, and so do networks and mounts.
    setpriv --pdeathsig KILL unshare "${apart[@]}" bash "$0" inside
    exit
fi

HOSTS=4 SILENCE=25 # seconds: RILL__WATCH_SILENCE
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
ip link set lo up
ip link add switch type bridge forward_delay 0
ip link set switch up
for ((i = 0; i < HOSTS; i++)); do
    ip netns add h$i
    ip link add port$i type veth peer name eth0 netns h$i
    ip link set port$i master switch
    ip link set port$i up
    ip -n h$i link set lo up
    ip -n h$i address add 10.77.0.$((i + 1))/24 dev eth0
    ip -n h$i link set eth0 up
done
pids=()
export WORLD_SIZE=$HOSTS RILL_RENDEZVOUS=10.77.0.1:7800 UCX_NET_DEVICES=eth0
for ((i = 0; i < HOSTS; i++)); do
    RANK=$i "$root/lab/enter" h$i exec "$python" "$root/tests/tool/hosts_deaths.py" \
        >"$tmp/log.$i" 2>&1 &
    pids+=($!)
done

show() { tail -n 5 "$tmp"/log.* >&2; }
await() { # await RANK PATTERN SECONDS
    local until=$((SECONDS + $3))
    until grep -qE "$2" "$tmp/log.$1"; do
        if ((SECONDS > until)); then show && fail "rank $1 does not say '$2' in $3 s"; fi
        sleep 0.1
    done
}
most() { # most WORD RANK LIMIT: of the last line that says who is gone
    local value
    value=$(grep -oE "$1 [0-9.]+" "$tmp/log.$2" | tail -n 1 | cut -d' ' -f2)
    awk -v a="$value" -v b="$3" 'BEGIN { exit !(a != "" && a <= b) }' ||
        { show && fail "rank $2: $1 after $value s, more than $3"; }
    echo "rank $2: $1 after $value s"
}

for ((i = 0; i < HOSTS; i++)); do await $i "^step 20 " 60; done
kill -KILL "$(sed -n 's/^pid //p' "$tmp/log.3")"
for i in 0 1 2; do
    await $i "^gone \[3\] .* ranks 3" 30
    most known $i 2
done
steps=$(grep -c ^step "$tmp/log.0")
await 0 "^step $((steps + 20)) " 30

ip link set port2 down
for i in 0 1; do
    await $i "^gone .* ranks 2" $((SILENCE + 60))
    most known $i $((SILENCE + 5))
done
await 2 "^out: " $((SILENCE + 60))
for i in 0 1; do await $i "^done " 60; done
status=0
wait "${pids[0]}" || status=1
wait "${pids[1]}" || status=1
((status == 0)) || { show && fail "a survivor failed"; }
wait "${pids[2]}" || status=$?
((status == 3)) || { show && fail "the rank without a network ended with status $status"; }
[[ $(tail -n 1 "$tmp/log.0") == "$(tail -n 1 "$tmp/log.1")" ]] ||
    { show && fail "survivors have different bits"; }
grep "^out: " "$tmp/log.2"
