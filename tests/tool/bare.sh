# long: the README's two commands in their order on a bare Debian: a newcomer's machine.
# limit: 5400
# It has nothing but make, git and certificates. It is made in a temporary folder, with this
# machine's package sources, and has the last commit. BARE_COMMAND: another command.
. "$(dirname "$0")/common.bash"
not_simulated
command=${BARE_COMMAND:-make demo && make test}
((EUID == 0)) || skip "needs root"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
command -v unshare >/dev/null || skip "no unshare"
git -C "$root" rev-parse -q --verify HEAD >/dev/null || skip "not a git checkout"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    if [[ -s $file && $file == *.@(list|sources) ]]; then sources+=("$file"); fi
done
((${#sources[@]})) || skip "no package sources"

bare=$(mktemp -d /var/tmp/rill-bare.XXXXXX) # /tmp may be in memory
trap 'rm -rf --one-file-system "$tmp" "$bare"' EXIT
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --quiet --variant=minbase --include=make,git,ca-certificates \
    "$release" "$bare" "${sources[@]}" >"$tmp/log" 2>&1 || {
    tail -n 5 "$tmp/log"
    skip "mmdebstrap found no packages of $release"
}
cp -a /etc/apt/apt.conf.d/. "$bare/etc/apt/apt.conf.d/"
cp /etc/resolv.conf /etc/hosts "$bare/etc/"
git clone -q --no-hardlinks "$root" "$bare/root/rill"
printf '#!/bin/bash\ncd /root/rill && %s\n' "$command" >"$bare/root/run"
chmod +x "$bare/root/run"

# Mounts and processes of its own: all of it ends with the command.
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child bash -euc '
    mount -t proc proc "$0/proc"; mount -t sysfs sysfs "$0/sys"
    mount --rbind /dev "$0/dev"; mount --make-rslave "$0/dev"
    exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 /root/run' "$bare" | tee "$tmp/out"
if [[ -z ${BARE_COMMAND:-} ]]; then
    grep -qE '^[0-9]+ passed, 0 failed' "$tmp/out" || fail "no count of passed tests"
    if grep -q 'not built' "$tmp/out"; then fail "something was not built"; fi
fi
