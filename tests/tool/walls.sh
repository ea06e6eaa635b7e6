# scripts/check-walls: a tree with one fault of each kind, and none is overlooked; nor are faults
# seen where there are none.
. "$(dirname "$0")/common.bash"
not_simulated
command -v python3 >/dev/null || skip "no python3"

tree=$tmp/tree
file() { # file PATH: from standard input
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
}
mkdir -p "$tree/scripts"
sed '/^EXCEPTIONS = /,/^}/c EXCEPTIONS = {}' "$root/scripts/check-walls" \
    >"$tree/scripts/check-walls"
check() { run "$1" python3 "$tree/scripts/check-walls"; }

file src/codec/codec_good.c <<'C'
#include "codec/codec.h"
#include "core/core.h"
/* #include "link/link.h" */
C
file src/link/link_mpi.c <<'C'
#include <mpi.h>
#ifdef SMPI_H
#endif
C
file tools/good.c <<'C'
#include "../src/core/outfile.h"
#include <rill/rill.h>
C
check 0
has "$tmp/out" "walls: ok"

echo '#include "req/request.h"' | file src/stream/stream_up.c
echo '#include "req/request.h"' | file src/coll/allreduce/allreduce_near.c
echo '#include <mpi.h>' | file src/plan/plan_mpi.c
echo '#ifdef SMPI_H' | file src/train/train_asks.c
echo '#include "cuda/cuda_space.h"' | file src/space/space_near.c
echo '#include "../src/api/comm.h"' | file tools/near.c
echo '#include "stream/stream.h"' | file src/train/train_near.c
file src/reduce/reduce_touch.c <<'C'
void touch(rill_stream *s) {
    memcpy(s->val.data,
           s->idx.data, 4);
}
C
check 1
has "$tmp/out" "src/stream/stream_up.c:1: stream/ includes req/, which comes after it" \
    "src/coll/allreduce/allreduce_near.c:1: an algorithm includes more than headers of coll/" \
    "src/plan/plan_mpi.c:1: sees MPI" "src/train/train_asks.c:1: asks for SimGrid's MPI" \
    "src/space/space_near.c:1: sees the table of librill_cuda" \
    "tools/near.c:1: sees the inside of the library" \
    "src/train/train_near.c:1: sees the inside of the library" \
    "src/reduce/reduce_touch.c:2: copies entries"
[[ $(wc -l <"$tmp/out") == 8 ]] || fail "more faults than there are: $(cat "$tmp/out")"

# An exception that nothing needs any more is a fault, too.
sed '/^EXCEPTIONS = /c EXCEPTIONS = {("src/core/gone.c", "mpi"): "it was there once"}' \
    "$tree/scripts/check-walls" >"$tmp/with"
rm -r "$tree/src" "$tree/tools"
cp "$tmp/with" "$tree/scripts/check-walls"
check 1
has "$tmp/out" "of no use any more"
