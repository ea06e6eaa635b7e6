# Wrong usage: status 2, a message on stderr that names what is wrong, nothing on stdout.
. "$(dirname "$0")/common.bash"
not_simulated

# wrong TEXT ARGUMENT...: the text is in the message.
wrong() {
    local text=$1
    shift
    run 2 "$RILL" "$@"
    has "$tmp/err" "$text"
    [[ ! -s $tmp/out ]] || fail "there is something on stdout: rill $*"
}

wrong "unknown command 'bnch'; did you mean 'bench'?" bnch
wrong "unknown command 'trian'; did you mean 'train'?" trian
wrong "unknown command 'xyzzy'" xyzzy
wrong "unknown command 'xyzzy'" help xyzzy
wrong "unknown option '--versoin'; did you mean '--version'?" --versoin
wrong "unknown option '--jsn'; did you mean '--json'?" info --jsn
wrong "unexpected argument 'more'" info more
wrong "unknown option '--densty'; did you mean '--density'?" bench --densty 1%
wrong "unknown option '-x'" bench -x
wrong "option '--dim' needs an argument" bench --dim
wrong "option '--quiet' takes no argument" bench --quiet=1
wrong "option '--no' is ambiguous" bench --no
wrong "unexpected argument 'kernel'; did you mean 'rill bench kernels'?" bench kernel
for dim in 0 -1 "" 16Q 2^ 2^64 ^3 1.5 1e30 0x10 " 4" "4 " inf nan 99999999999999999999; do
    wrong "--dim: '$dim' is not" bench --dim "$dim"
done
wrong "--dim: '' is not" bench --dim 4,,8
for density in -0.1 1.1 101% x 1%% "" nan inf 0x1p-3; do
    wrong "--density: '$density' is not" bench --density "$density"
done
for ranks in 0 -2 two 2.0 "" 99999999999; do
    wrong "--ranks: '$ranks' is not" bench --ranks "$ranks"
done
wrong "--nnz: 'many' is not" bench --nnz many
wrong "--nnz: 9 is more than the dimension 8" bench --nnz 9 --dim 8
wrong "only one of them" bench --nnz 9 --density 1%
wrong "--algorithm: unknown 'rng'; did you mean 'ring'?" bench --algorithm dense,rng
wrong "--codec: unknown 'zip'" bench --codec zip
wrong "--value-bits: '3' is not one of 0, 16, 8, 4, 2" bench --value-bits 8,3
wrong "--op: unknown 'add'" bench --op add
wrong "--type: unknown 'f3'; did you mean 'f32'?" bench --type f3
wrong "--overlap: unknown 'some'" bench --overlap some
wrong "--overlap: 'full' can't serve allgather" bench --collective allgather --overlap full
wrong "--op: bcast has no operation" bench --collective bcast --op max
wrong "--collective: unknown 'allreduc'; did you mean 'allreduce'?" bench --collective allreduc
wrong "--reps: '0' is not" bench --reps 0
wrong "--warmup: 'a' is not" bench --warmup a
wrong "--form: unknown 'flat'" bench --form flat
wrong "--order: unknown 'random'" bench --order random
wrong "--type: unknown 'int'" bench kernels --type int
wrong "--reps: '0' is not" bench kernels --reps 0
wrong "--json: cannot write '/nowhere/x'" bench kernels --json /nowhere/x
wrong "--algorithm: unknown 'xyzzy' (auto, all, dense," bench reducer --algorithm auto,xyzzy
wrong "--rate: 'fast' is not a rate, such as 100mbit" plan --rate fast
wrong "--ranks: '0' is not a number of ranks" plan --ranks 0
# Before the data are read.
wrong "--loss: unknown 'logstic'; did you mean 'logistic'?" train /nowhere --loss logstic
wrong "--solver: unknown 'newtn'; did you mean 'newton'?" train /nowhere --solver newtn
wrong "--C: '-1' is not auto or a number above 0" train /nowhere --C -1
wrong "--valid: '120%' is not a share, such as 0.2 or 20%" train /nowhere --valid 120%

# What only the ranks know is reported by one of them.
once() {
    wrong "$@"
    local count
    count=$(grep -cF -- "$1" "$tmp/err") || true
    [[ $count == 1 ]] || fail "the message appears $count times"
}
once "--json: cannot write '/nowhere/x'" bench --dim 64 --json /nowhere/x
once "--overlap: none: 2 ranks with 60 non-zeros each" bench --dim 64 --nnz 60 --overlap none

run 1 env RILL_MPIRUN=/nowhere/mpirun "$RILL" bench --dim 64
has "$tmp/err" "cannot run /nowhere/mpirun"
run 1 env PATH=/nowhere "$RILL" bench --dim 64
has "$tmp/err" "RILL_MPIRUN"
