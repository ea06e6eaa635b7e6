# Ranks on other hosts by a real ssh: a server of the test's own with throw-away keys, which this
# machine's addresses 127.0.0.2 and 127.0.0.3 stand for two hosts of. Training gives the bits that
# threads give. A rank that dies ends all, and so does the end of the launcher, however it ends.
. "$(dirname "$0")/common.bash"
not_simulated
first=$("$RILL" bench --link ucx --ranks 2 --dim 100 --reps 1 2>&1 || true)
if [[ $first == *"built without UCX"* ]]; then skip "no UCX"; fi
PATH=$PATH:/usr/sbin
sshd=$(type -P sshd) || skip "there is no sshd (package openssh-server)"
type -P ssh ssh-keygen >/dev/null || skip "there is no ssh"
export RILL_PROFILE=none

# ---- the server
free='import socket; s = socket.socket(); s.bind(("0.0.0.0", 0)); print(s.getsockname()[1])'
port=$(python3 -c "$free")
ssh-keygen -q -t ed25519 -N "" -f "$tmp/host" && ssh-keygen -q -t ed25519 -N "" -f "$tmp/user"
cat >"$tmp/sshd.conf" <<END
Port $port
ListenAddress 127.0.0.2
ListenAddress 127.0.0.3
HostKey $tmp/host
PidFile none
AuthorizedKeysFile $tmp/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
END
if ((EUID == 0)); then mkdir -p /run/sshd; fi # it does not start without, and is root's there
"$sshd" -D -e -f "$tmp/sshd.conf" 2>"$tmp/sshd.err" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$tmp"' EXIT
export RILL_SSH="ssh -F none -p $port -i $tmp/user -o BatchMode=yes -o IdentitiesOnly=yes \
-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
for ((i = 0; i < 50; i++)); do
    if $RILL_SSH 127.0.0.3 true 2>"$tmp/err"; then break; fi
    sleep 0.1
done
((i < 50)) || skip "no login by ssh here: $(tail -n 1 "$tmp/err") $(tail -n 1 "$tmp/sshd.err")"

# ---- sums, training
printf '127.0.0.2 slots=2\n127.0.0.3 slots=1\n' >"$tmp/hosts"
run 0 env RILL_CODEC=bitpack "$RILL" bench --link ucx --hostfile "$tmp/hosts" --dim 5000 \
    --reps 1 --algorithm ring,dense --json "$tmp/json"
all_correct "$tmp/json"
has "$tmp/json" '"ranks":3' '"codec":"bitpack"'
awk 'BEGIN { srand(3); for (i = 0; i < 200; i++) { line = ""
    for (j = 1; j <= 40; j++) if (rand() < 0.2) line = line " " j ":" int(rand() * 9) + 1
    print (i % 2 ? "+1" : "-1") line } }' >"$tmp/the data" # a name that a shell would split
train=("$RILL" train "$tmp/the data" --epochs 2 --C 1 --quiet)
run 0 "${train[@]}" --link ucx --hostfile "$tmp/hosts" --model "$tmp/model.ssh"
run 0 "${train[@]}" --link local --ranks 3 --model "$tmp/model.local"
cmp -s "$tmp/model.ssh" "$tmp/model.local" || fail "other bits by ssh"
run 1 "${train[@]}" --link ucx --hostfile "$tmp/hosts" --model "$tmp/none/model"
[[ $(grep -c "rill: train: .*none/model" "$tmp/err") == 1 ]] || fail "no message, or more than one"
run 1 env RILL_SSH="$RILL_SSH -l nobody-of-that-name" "$RILL" bench --link ucx \
    --hostfile "$tmp/hosts" --dim 100
has "$tmp/err" "host 127.0.0.2: ended with status 255"

# ---- ends
mark=$$.$RANDOM # goes along, and so tells the ranks of this test
ranks_here() {
    local each
    grep -lzsx "RILL_TEST_MARK=$mark" /proc/[0-9]*/environ | while read -r each; do
        if grep -qzs '^RANK=' "$each"; then basename "$(dirname "$each")"; fi
    done
}
for end in rank TERM KILL; do
    RILL_TEST_MARK=$mark "$RILL" bench --link ucx --hostfile "$tmp/hosts" --dim 2^16 \
        --reps 1000000 --algorithm ring --quiet >"$tmp/out" 2>"$tmp/err" &
    job=$! ranks=()
    for ((i = 0; i < 200 && ${#ranks[@]} < 3; i++)); do
        mapfile -t ranks < <(ranks_here)
        sleep 0.1
    done
    ((${#ranks[@]} == 3)) || fail "${#ranks[@]} ranks, not 3: $(cat "$tmp/err")"
    sleep 0.3
    if [[ $end == rank ]]; then kill -9 "${ranks[1]}"; else kill "-$end" "$job"; fi
    status=0
    wait "$job" 2>/dev/null || status=$?
    for ((i = 0; i < 100; i++)); do
        if [[ -z $(ranks_here) ]]; then break; fi
        sleep 0.1
    done
    ((i < 100)) || fail "$end: ranks are left after 10 s"
    case $end in
    rank)
        [[ $status == 1 ]] || fail "status $status, not 1"
        grep -q "rank . was ended by signal 9" "$tmp/err" || fail "$(cat "$tmp/err")"
        ;;
    TERM) [[ $status == 143 ]] || fail "status $status, not that of the signal" ;;
    esac
done
