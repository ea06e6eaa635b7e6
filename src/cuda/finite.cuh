/* Values as space/host_dense.c and space/host_finite.c compute with them. */
#ifndef RILL_CUDA_FINITE_CUH
#define RILL_CUDA_FINITE_CUH

#include "device.cuh"

struct f64 {
    typedef u64 word;
    typedef double real;
    static __device__ __forceinline__ double load(const void *at, u64 i) {
        return ((const double *)at)[i];
    }
    static __device__ __forceinline__ double round(double x) { return x; }
    static __device__ __forceinline__ void store(void *at, u64 i, double x) {
        ((double *)at)[i] = x;
    }
};
template <class T> struct narrow {
    typedef typename T::word word;
    typedef float real;
    static __device__ __forceinline__ float load(const void *at, u64 i) {
        return T::to_float(((const word *)at)[i]);
    }
    /* What is left of a result when it is stored and loaded again. */
    static __device__ __forceinline__ float round(float x) { return T::to_float(T::from_float(x)); }
    static __device__ __forceinline__ void store(void *at, u64 i, float x) {
        ((word *)at)[i] = (word)T::from_float(x);
    }
};
template <class R> static __device__ __forceinline__ bool is_finite(R x) { return x - x == 0; }

/* old less x, which counts as 0 where it is not finite; what is not finite then becomes 0. */
template <class T>
static __device__ __forceinline__ typename T::real less_finite(typename T::real old,
                                                               typename T::real x) {
    typedef typename T::real R;
    R y = T::round(old + (R)-1 * (is_finite(x) ? x : (R)0));
    return is_finite(y) ? y : (R)0;
}

#endif
