/* Fields of a few bits in streams of little-endian bits: bit b in byte b / 8 at 1 << b % 8. */
#ifndef RILL_CUDA_BITS_CUH
#define RILL_CUDA_BITS_CUH

#include "device.cuh"

static __device__ __forceinline__ u32 width_of(u32 x) { return 32u - (u32)__clz((int)x); }

/* width <= 32 bits from `bit` on; bytes past the end are not read. */
static __device__ __forceinline__ u32 bits_from(const unsigned char *in, u64 end, u64 bit,
                                                u32 width) {
    u64 word = 0;
    for (u32 b = 0; b < 5; b++)
        if (bit / 8 + b < end) word |= (u64)in[bit / 8 + b] << 8 * b;
    word >>= bit % 8;
    return (u32)(width < 32 ? word & ((1u << width) - 1) : word);
}

/* Sets `width` bits from `bit` on. */
static __device__ __forceinline__ void set_bits_at(u32 *out, u64 bit, u32 width, u32 value) {
    if (!width || !value) return;
    u64 shifted = (u64)value << (bit & 31);
    if ((u32)shifted) atomicOr(&out[bit / 32], (u32)shifted);
    if (shifted >> 32) atomicOr(&out[bit / 32 + 1], (u32)(shifted >> 32));
}

#endif
