/* Random numbers by counter: Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1,
 * 2, 3, 2011), by Random123. The same four numbers in give the same 128 bits out, anywhere. */
#ifndef RILL_TRAIN_DATA_RANDOM_H
#define RILL_TRAIN_DATA_RANDOM_H

#include <Random123/philox.h>
#include <stdint.h>

static inline void rill__random(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b,
                                uint64_t out[2]) {
    /* The key has 64 bits; the stream is spread over the counter's words by an odd constant. */
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    uint64_t high = b + stream * UINT64_C(0x9E3779B97F4A7C15);
    philox4x32_ctr_t counter = {
        {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
    philox4x32_ctr_t r = philox4x32(counter, key);
    out[0] = r.v[0] | (uint64_t)r.v[1] << 32;
    out[1] = r.v[2] | (uint64_t)r.v[3] << 32;
}

#endif
