# sums through shared memory where /dev/shm is tiny, full or has no room left: the same bits
# A mount namespace with a small tmpfs there; test_shared looks that parts went by message then.
. "$(dirname "$0")/common.bash"
not_simulated
PATH=$PATH:/usr/sbin:/sbin
test_shared=$(dirname "$RILL")/../tests/test_shared
[[ -x $test_shared ]] || skip "test_shared is not built"
apart=(unshare --mount)
if ((EUID != 0)); then apart=(unshare --user --map-root-user --mount); fi
try='mount -t tmpfs -o size=64k tmpfs /dev/shm && [[ $(stat -f -c %b /dev/shm) -lt 100 ]]'
type -P unshare >/dev/null || skip "there is no 'unshare'"
"${apart[@]}" bash -c "$try" 2>/dev/null || skip "this machine makes no mount namespaces"

# MPI's own segments, and UCX's, find no room there either.
export OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMPI_MCA_orte_tmpdir_base=$tmp
export MPICH_NOLOCAL=1 MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self,sysv
cat >"$tmp/inside" <<'END'
case $1 in
none) mount -t tmpfs -o size=4k tmpfs /dev/shm; mkdir /dev/shm/taken ;;
tiny) mount -t tmpfs -o size=64k tmpfs /dev/shm ;;
full) mount -t tmpfs -o size=1m tmpfs /dev/shm
      dd if=/dev/zero of=/dev/shm/taken bs=64k count=16 status=none ;;
esac
shift
exec "$@"
END
sums() { # sums WAY LINK [ARGUMENT...]: the bits
    local way=$1 link=$2
    shift 2
    run 0 "${apart[@]}" bash "$tmp/inside" "$way" "$root/scripts/mpirun-test" 3 "$test_shared" \
        --link "$link" "$@"
    grep -o "bits .*" "$tmp/out" || fail "no bits from $way, $link"
}
for link in mpi ucx; do
    wanted=$(sums as_it_is $link)
    ways=(tiny full)
    if [[ $link == mpi ]]; then ways+=(none); fi
    for way in "${ways[@]}"; do
        got=$(sums $way $link --full)
        [[ $got == "$wanted" ]] || fail "$way, $link: $got, not $wanted"
    done
    echo "$link: $wanted"
done
