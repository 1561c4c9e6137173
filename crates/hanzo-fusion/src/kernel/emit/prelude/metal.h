// What the kernel below is written in, as Metal Shading Language. Compile without fast math: f32 operations round once each.
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)
typedef ushort hz_f16;
#define HZ_FN static inline
#define HZ_KERNEL(n) [[kernel, max_total_threads_per_threadgroup(n)]] void
#ifndef HZ_SHIM
#define HZ_SHARED threadgroup
#endif
#define HZ_TABLE static constant
#define HZ_UNROLL _Pragma("unroll")
#define HZ_LOCAL_ID hz_local_id
#define HZ_WORKGROUP_ID hz_workgroup
#define HZ_NUM_WORKGROUPS hz_grid
#define HZ_WIDE(type, p, i) (*reinterpret_cast<const device type*>((p) + (i)))
#define hz_barrier() threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)
HZ_FN float hz_fma(float a, float b, float c) { return fma(a, b, c); }
HZ_FN float hz_abs(float a) { return fabs(a); }
HZ_FN float hz_sqrt(float a) { return precise::sqrt(a); }
HZ_FN float hz_round_even(float a) { return rint(a); }
HZ_FN float hz_floor(float a) { return floor(a); }
HZ_FN uint hz_popcount(uint a) { return popcount(a); }
HZ_FN uint hz_bits(float a) { return as_type<uint>(a); }
HZ_FN float hz_float(uint a) { return as_type<float>(a); }
HZ_FN uchar hz_u8(uint a) { return uchar(a); }
HZ_FN ushort hz_u16(uint a) { return ushort(a); }
HZ_FN float hz_f16_to_f32(hz_f16 a) { return float(as_type<half>(a)); }
HZ_FN hz_f16 hz_f32_to_f16(float a) { return as_type<ushort>(half(a)); }
// No packed dot product: products of chars are exact in int.
HZ_FN int hz_dot4(uint a, uint b, int c) {
    char4 x = as_type<char4>(a), y = as_type<char4>(b);
    return c + int(x.x) * int(y.x) + int(x.y) * int(y.y) + int(x.z) * int(y.z) + int(x.w) * int(y.w);
}
HZ_FN int hz_dot4_us(uint a, uint b, int c) {
    uchar4 x = as_type<uchar4>(a);
    char4 y = as_type<char4>(b);
    return c + int(x.x) * int(y.x) + int(x.y) * int(y.y) + int(x.z) * int(y.z) + int(x.w) * int(y.w);
}
template <class T> HZ_FN T hz_min(T a, T b) { return a < b ? a : b; }
template <class T> HZ_FN T hz_max(T a, T b) { return a > b ? a : b; }
template <class T> HZ_FN T hz_shuffle_xor(T a, uint mask) { return simd_shuffle_xor(a, ushort(mask)); }
template <class T> HZ_FN T hz_shuffle(T a, uint lane) { return simd_shuffle(a, ushort(lane)); }
HZ_FN uint hz_ballot(bool a) { return uint(uint64_t(simd_ballot(a))); }
template <class T> HZ_FN T hz_reduce_add(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = T(a + hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_min(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_min(a, hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_max(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_max(a, hz_shuffle_xor(a, o)); return a; }
#define hz_atomic_add(p, v) hz_atomic(add, p, v)
#define hz_atomic_min(p, v) hz_atomic(min, p, v)
#define hz_atomic_max(p, v) hz_atomic(max, p, v)
#define hz_atomic(op, p, v) atomic_fetch_##op##_explicit(hz_atomic_ptr(p), v, memory_order_relaxed)
HZ_FN device atomic_int* hz_atomic_ptr(device int* p) { return (device atomic_int*)p; }
HZ_FN device atomic_uint* hz_atomic_ptr(device uint* p) { return (device atomic_uint*)p; }
#if !defined(HZ_SHIM) || defined(HZS_ADDRESS_SPACES)
HZ_FN threadgroup atomic_int* hz_atomic_ptr(threadgroup int* p) { return (threadgroup atomic_int*)p; }
HZ_FN threadgroup atomic_uint* hz_atomic_ptr(threadgroup uint* p) { return (threadgroup atomic_uint*)p; }
#endif

