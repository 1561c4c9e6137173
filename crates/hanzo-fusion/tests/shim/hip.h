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
