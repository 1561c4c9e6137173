// HIP's words for clang, as far as kernels use them.
#pragma once
#define HZ_SHIM
#include "fibre.h"
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
#define HZ_FN static inline
#define HZ_KERNEL(n) extern "C" void
#define HZ_SHARED static
#define HZ_TABLE static const
#define _Float16 hzs_half
struct hzs_half {
    uint16_t bits;
    hzs_half() = default;
    explicit hzs_half(float a) : bits(hzs::float_to_half(a)) {}
    explicit operator float() const { return hzs::half_to_float(bits); }
};
#define __builtin_amdgcn_workitem_id_x() (hzs::self)
#define __builtin_amdgcn_workgroup_id_x() (hzs::group.x)
#define __builtin_amdgcn_workgroup_id_y() (hzs::group.y)
#define __builtin_amdgcn_workgroup_id_z() (hzs::group.z)
#define __builtin_amdgcn_workgroup_size_x() (hzs::size.x)
#define __builtin_amdgcn_grid_size_x() (hzs::grid.x * hzs::size.x)
#define __builtin_amdgcn_grid_size_y() (hzs::grid.y)
#define __builtin_amdgcn_grid_size_z() (hzs::grid.z)
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __builtin_amdgcn_s_barrier() hzs::barrier()
#define __builtin_amdgcn_sudot4(as, a, bs, b, c, clamp) hzs::dot4(unsigned(a), unsigned(b), c, as)
#define __builtin_amdgcn_sdot4(a, b, c, clamp) hzs::dot4(unsigned(a), unsigned(b), c, true)
#define __builtin_amdgcn_ds_bpermute(address, value) hzs::shuffle(int(value), unsigned(address) / 4)
#define __builtin_amdgcn_ballot_w32(a) unsigned(hzs::ballot(a))
#define __builtin_amdgcn_ballot_w64(a) hzs::ballot(a)
template <class T> T hzs_fetch(T* p, T next) { T old = *p; *p = next; return old; }
#define __atomic_fetch_add(p, v, order) hzs_fetch(p, decltype(v)(*p + v))
#define __atomic_fetch_min(p, v, order) hzs_fetch(p, v < *p ? v : *p)
#define __atomic_fetch_max(p, v, order) hzs_fetch(p, v > *p ? v : *p)
#ifdef __GFX9__
// v_mfma_*_16x16x16: lane l has row l % 16 of A (column of B), k from 4·(l / 16); sums are rows 4·(l / 16) on, column l % 16.
inline void hz_mma_f16(float* c, const uint32_t* a, const uint32_t* b) {
    hzs::show(a, 2);
    hzs::show(b, 2, 8);
    hzs::subgroup_meet();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = hzs::lane() / 16 * 4 + i, column = hzs::lane() % 16;
        for (unsigned k = 0; k < 16; k++) {
            float x = hzs::shown_half(k / 4 * 16 + row, k % 4 / 2, k % 2);
            c[i] = std::fma(x, hzs::shown_half(k / 4 * 16 + column, 8 + k % 4 / 2, k % 2), c[i]);
        }
    }
    hzs::subgroup_meet();
}
inline void hz_mma_i8(int* c, const uint32_t* a, const uint32_t* b) {
    hzs::show(a, 1);
    hzs::show(b, 1, 8);
    hzs::subgroup_meet();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = hzs::lane() / 16 * 4 + i, column = hzs::lane() % 16;
        for (unsigned k = 0; k < 16; k++) c[i] += hzs::shown_byte(k / 4 * 16 + row, 0, k % 4) * hzs::shown_byte(k / 4 * 16 + column, 8, k % 4);
    }
    hzs::subgroup_meet();
}
#else
// v_wmma_*_16x16x16: lane l has all of row l % 16 of A (column of B), as lane l + 16 must; sums are rows 2·i + l / 16, column l % 16.
inline void hzs_twice(unsigned n, unsigned at) {
    for (unsigned i = 0; i < n; i++)
        if (hzs::shown[hzs::base() + hzs::lane() % 16][at + i] != hzs::shown[hzs::base() + hzs::lane() % 16 + 16][at + i]) exit(4);
}
inline void hz_mma_f16(float* c, const uint32_t* a, const uint32_t* b) {
    hzs::show(a, 8);
    hzs::show(b, 8, 8);
    hzs::subgroup_meet();
    hzs_twice(16, 0);
    for (unsigned i = 0; i < 8; i++) {
        unsigned row = 2 * i + hzs::lane() / 16, column = hzs::lane() % 16;
        for (unsigned k = 0; k < 16; k++)
            c[i] = std::fma(hzs::shown_half(row, k / 2, k % 2), hzs::shown_half(column, 8 + k / 2, k % 2), c[i]);
    }
    hzs::subgroup_meet();
}
inline void hz_mma_i8(int* c, const uint32_t* a, const uint32_t* b) {
    hzs::show(a, 4);
    hzs::show(b, 4, 4);
    hzs::subgroup_meet();
    hzs_twice(8, 0);
    for (unsigned i = 0; i < 8; i++) {
        unsigned row = 2 * i + hzs::lane() / 16, column = hzs::lane() % 16;
        for (unsigned k = 0; k < 16; k++) c[i] += hzs::shown_byte(row, k / 4, k % 4) * hzs::shown_byte(column, 4 + k / 4, k % 4);
    }
    hzs::subgroup_meet();
}
#endif
