/* Recursive doubling over any number of ranks. With P = 2^m + r the first 2r ranks fold in pairs:
 * the odd rank gives its data to the even one below it, and gets the result from it at the end.
 * The remaining 2^m exchange in m rounds. Neighbours fold, so that the order of ranks is kept. */
#include "req/request.h"

rill__round_kind rill__doubling_round(int rank, int size, int round, int *peer) {
    int power = 1, log = 0;
    while (power <= size / 2)
        power *= 2, log++;
    int folded = size - power;
    if (rank < 2 * folded) {
        if (rank % 2) {
            *peer = rank - 1;
            return round == 0   ? RILL__ROUND_SEND
                   : round == 1 ? RILL__ROUND_RESULT_RECEIVE
                                : RILL__ROUND_END;
        }
        if (round == 0 || round == log + 1) {
            *peer = rank + 1;
            return round == 0 ? RILL__ROUND_RECEIVE : RILL__ROUND_RESULT_SEND;
        }
        if (round > log + 1) return RILL__ROUND_END;
        round--;
    } else if (round >= log) {
        return RILL__ROUND_END;
    }
    int index = rank < 2 * folded ? rank / 2 : rank - folded;
    int other = index ^ (1 << round);
    *peer = other < folded ? 2 * other : other + folded;
    return RILL__ROUND_EXCHANGE;
}

uint32_t rill__doubling_group(int rank, int size, int round, bool *leads) {
    int power = 1;
    while (power <= size / 2)
        power *= 2;
    int folded = size - power;
    int index = rank < 2 * folded ? rank / 2 : rank - folded;
    if (rank < 2 * folded) round--; /* its first round was the fold */
    int group = index >> round << round;
    *leads = index == group;
    return (uint32_t)group;
}
