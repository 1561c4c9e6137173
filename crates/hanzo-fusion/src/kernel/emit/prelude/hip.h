// What the kernel below is written in, as HIP C++ for clang without HIP's own headers.
#pragma clang fp contract(off)
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef ushort hz_f16;
#ifndef HZ_SHIM
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef int int2 __attribute__((ext_vector_type(2)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
#define HZ_FN static inline __attribute__((device, always_inline))
#define HZ_KERNEL(n) extern "C" __attribute__((global, amdgpu_flat_work_group_size(n, n))) void
#define HZ_SHARED __attribute__((shared))
#define HZ_TABLE static __attribute__((constant)) const
#endif
struct hz_uint3 { uint x, y, z; };
#define HZ_UNROLL _Pragma("unroll")
#define HZ_LOCAL_ID (uint(__builtin_amdgcn_workitem_id_x()))
#define HZ_WORKGROUP_ID hz_workgroup_id()
#define HZ_NUM_WORKGROUPS hz_num_workgroups()
#define HZ_WIDE(type, p, i) (*reinterpret_cast<const type*>((p) + (i)))
HZ_FN hz_uint3 hz_workgroup_id() { return hz_uint3{uint(__builtin_amdgcn_workgroup_id_x()), uint(__builtin_amdgcn_workgroup_id_y()), uint(__builtin_amdgcn_workgroup_id_z())}; }
HZ_FN hz_uint3 hz_num_workgroups() {
    return hz_uint3{uint(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()), uint(__builtin_amdgcn_grid_size_y()), uint(__builtin_amdgcn_grid_size_z())};
}
HZ_FN void hz_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
HZ_FN float hz_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HZ_FN float hz_abs(float a) { return __builtin_fabsf(a); }
HZ_FN float hz_sqrt(float a) { return __builtin_sqrtf(a); }
HZ_FN float hz_round_even(float a) { return __builtin_rintf(a); }
HZ_FN float hz_floor(float a) { return __builtin_floorf(a); }
HZ_FN uint hz_popcount(uint a) { return uint(__builtin_popcount(a)); }
HZ_FN uint hz_bits(float a) { return __builtin_bit_cast(uint, a); }
HZ_FN float hz_float(uint a) { return __builtin_bit_cast(float, a); }
HZ_FN uchar hz_u8(uint a) { return uchar(a); }
HZ_FN ushort hz_u16(uint a) { return ushort(a); }
HZ_FN float hz_f16_to_f32(hz_f16 a) { return float(__builtin_bit_cast(_Float16, a)); }
HZ_FN hz_f16 hz_f32_to_f16(float a) { return __builtin_bit_cast(hz_f16, _Float16(a)); }
#ifdef __GFX9__
HZ_FN int hz_dot4(uint a, uint b, int c) { return __builtin_amdgcn_sdot4(int(a), int(b), c, false); }
// No mixed dot product: a − 128 is signed, and 128·Σb makes up for it.
HZ_FN int hz_dot4_us(uint a, uint b, int c) {
    return __builtin_amdgcn_sdot4(0x01010101, int(b), 0, false) * 128 + __builtin_amdgcn_sdot4(int(a ^ 0x80808080u), int(b), c, false);
}
#else
HZ_FN int hz_dot4(uint a, uint b, int c) { return __builtin_amdgcn_sudot4(true, int(a), true, int(b), c, false); }
HZ_FN int hz_dot4_us(uint a, uint b, int c) { return __builtin_amdgcn_sudot4(false, int(a), true, int(b), c, false); }
#endif
template <class T> HZ_FN T hz_min(T a, T b) { return a < b ? a : b; }
template <class T> HZ_FN T hz_max(T a, T b) { return a > b ? a : b; }
template <class T> HZ_FN T hz_shuffle(T a, uint lane) {
    // Subgroups are whole waves: lanes count from 0 in each.
    return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(int(lane * 4), __builtin_bit_cast(int, a)));
}
template <class T> HZ_FN T hz_shuffle_xor(T a, uint mask) { return hz_shuffle(a, (HZ_LOCAL_ID % HZ_SUBGROUP) ^ mask); }
HZ_FN uint hz_ballot(bool a) {
#if HZ_SUBGROUP == 64
    return uint(__builtin_amdgcn_ballot_w64(a));
#else
    return uint(__builtin_amdgcn_ballot_w32(a));
#endif
}
template <class T> HZ_FN T hz_reduce_add(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = T(a + hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_min(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_min(a, hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_max(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_max(a, hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_atomic_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
template <class T> HZ_FN T hz_atomic_min(T* p, T v) { return __atomic_fetch_min(p, v, __ATOMIC_RELAXED); }
template <class T> HZ_FN T hz_atomic_max(T* p, T v) { return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); }

