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

wrong "--partition: unknown 'even'" bench --partition even
wrong "--partition: 'even' is not auto, uniform or balanced" bench reducer --partition even
for command in "bench reducer" "bench overlap" plan; do
    # shellcheck disable=SC2086
    wrong "--codec: 'zip' is not auto or a codec" $command --codec zip
    # shellcheck disable=SC2086
    wrong "--value-bits: '3' is not one of 0, 16, 8, 4, 2" $command --value-bits 3
done
wrong "--allow-bits: '5' is not one of" plan --allow-bits 5
wrong "--partition: 'even' is not auto" plan --partition even
wrong "--link: 'smoke' is not mpi, ucx or local" plan --link smoke
wrong "--memory: 'disk' is not host or cuda" plan --memory disk
wrong "--hosts: 9 are more than the 8 ranks" plan --hosts 9
wrong "--nnz: 9 is more than the dimension 8" plan --dim 8 --nnz 9
wrong "--result: 9 is more than the dimension 8" plan --dim 8 --nnz 2 --result 9
wrong "only one of them" plan --nnz 9 --density 1%
for option in "--value-bits 3" "--l2 -1" "--l1 -1" "--lr -1" "--momentum 1" "--tolerance -1" \
    "--step-factor 0" "--huber-delta 0" "--density 0" "--valid 100%"; do
    # shellcheck disable=SC2086
    wrong "${option% *}: '${option#* }' is not" train /nowhere $option
done
wrong "--density needs --reducer" train /nowhere --density 1%
wrong "--checkpoint-every needs --checkpoint" train /nowhere --checkpoint-every 2
wrong "two of them are one file" train /nowhere --model /nowhere/a --log /nowhere/a
wrong "'/nowhere/a' is to be two files" predict /nowhere --model /nowhere/m \
    --scores /nowhere/a --probabilities /nowhere/a

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

# A file that cannot be read is said to be so, and why.
printf 'solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n1\n' >"$tmp/model"
run 1 "$RILL" model "$tmp/model" --names /nowhere/names
has "$tmp/err" "/nowhere/names: cannot be read: No such file or directory"
run 1 "$RILL" model "$tmp"
has "$tmp/err" "$tmp: cannot be read: Is a directory"
run 1 "$RILL" plan --profile "$tmp"
has "$tmp/err" "profile $tmp: Is a directory"
run 0 "$RILL" plan --nnz 0 --profile none
cp "$tmp/out" "$tmp/none"
run 0 "$RILL" plan --density 0 --profile none
cmp -s "$tmp/out" "$tmp/none" || fail "--nnz 0 is not --density 0"
