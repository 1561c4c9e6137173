// CUDA's words, as far as kernels use them.
#pragma once
#define HZ_SHIM
#include "fibre.h"
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct ThreadIdx { unsigned x; };
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(n)
#define threadIdx (ThreadIdx{hzs::self})
#define blockIdx hzs::group
#define gridDim hzs::grid
inline void __syncthreads() { hzs::barrier(); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline unsigned __float_as_uint(float a) { unsigned u; memcpy(&u, &a, 4); return u; }
inline float __uint_as_float(unsigned a) { float f; memcpy(&f, &a, 4); return f; }
inline int __dp4a(int a, int b, int c) { return hzs::dot4(unsigned(a), unsigned(b), c, true); }
template <class T> T __shfl_xor_sync(unsigned, T a, int mask) { return hzs::shuffle(a, hzs::lane() ^ unsigned(mask)); }
template <class T> T __shfl_sync(unsigned, T a, int lane) { return hzs::shuffle(a, unsigned(lane)); }
inline unsigned __ballot_sync(unsigned, bool a) { return unsigned(hzs::ballot(a)); }
template <class T> T atomicAdd(T* p, T v) { T old = *p; *p = T(old + v); return old; }
template <class T> T atomicMin(T* p, T v) { T old = *p; *p = v < old ? v : old; return old; }
template <class T> T atomicMax(T* p, T v) { T old = *p; *p = v > old ? v : old; return old; }
inline float hz_f16_to_f32(unsigned short a) { return hzs::half_to_float(a); }
inline unsigned short hz_f32_to_f16(float a) { return hzs::float_to_half(a); }
inline int hz_dot4_us(unsigned a, unsigned b, int c) { return hzs::dot4(a, b, c, false); }
// mma.sync.m16n8k16 over the registers of PTX's tables: lane 4·g + t.
inline void hz_mma_f16(float* c, const unsigned* a, const unsigned* b) {
    hzs::show(a, 4);
    hzs::show(b, 2, 4);
    hzs::subgroup_meet();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = hzs::lane() / 4 + (i > 1 ? 8 : 0), column = hzs::lane() % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            float x = hzs::shown_half(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2);
            c[i] = std::fma(x, hzs::shown_half(column * 4 + k % 8 / 2, 4 + k / 8, k % 2), c[i]);
        }
    }
    hzs::subgroup_meet();
}
inline void hz_mma_i8(int* c, const unsigned* a, const unsigned* b) {
    hzs::show(a, 2);
    hzs::show(b, 1, 4);
    hzs::subgroup_meet();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = hzs::lane() / 4 + (i > 1 ? 8 : 0), column = hzs::lane() % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++)
            c[i] += hzs::shown_byte(row % 8 * 4 + k / 4, row / 8, k % 4) * hzs::shown_byte(column * 4 + k / 4, 4, k % 4);
    }
    hzs::subgroup_meet();
}
