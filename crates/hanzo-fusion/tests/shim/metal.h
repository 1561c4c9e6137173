// Metal's words, as far as kernels use them. Stands for <metal_stdlib>. Address spaces are checked by clang where it compiles this
// (HZS_ADDRESS_SPACES); attributes in [[…]] that it does not know are ignored, as C++ asks.
#pragma once
#define HZ_SHIM
#include "fibre.h"
#ifdef HZS_ADDRESS_SPACES
#define device __attribute__((address_space(1)))
#else
#define device
#endif
#define constant const
#define threadgroup
#define HZ_SHARED static
namespace metal {
typedef unsigned uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
template <class T> struct vec2 { T x, y; };
template <class T> struct vec4 { T x, y, z, w; };
typedef vec2<uint> uint2;
typedef vec4<uint> uint4;
typedef vec2<int> int2;
typedef vec4<int> int4;
typedef vec2<float> float2;
typedef vec4<float> float4;
typedef vec4<int8_t> char4;
typedef vec4<uint8_t> uchar4;
struct uint3 { uint x, y, z; };
struct half {
    uint16_t bits;
    half() = default;
    explicit half(float a) : bits(hzs::float_to_half(a)) {}
    explicit operator float() const { return hzs::half_to_float(bits); }
};
template <class T, class U> T as_type(U u) {
    static_assert(sizeof(T) == sizeof(U), "as_type keeps the size");
    T t;
    memcpy(&t, &u, sizeof t);
    return t;
}
namespace precise {
inline float sqrt(float a) { return std::sqrt(a); }
}
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float fabs(float a) { return std::fabs(a); }
inline float rint(float a) { return std::rint(a); }
inline float floor(float a) { return std::floor(a); }
inline uint popcount(uint a) { return uint(__builtin_popcount(a)); }
struct mem_flags { enum { mem_device = 1, mem_threadgroup = 2 }; };
inline void threadgroup_barrier(int) { hzs::barrier(); }
template <class T> T simd_shuffle_xor(T a, ushort mask) { return hzs::shuffle(a, hzs::lane() ^ mask); }
template <class T> T simd_shuffle(T a, ushort lane) { return hzs::shuffle(a, lane); }
inline uint64_t simd_ballot(bool a) { return hzs::ballot(a); }
enum memory_order { memory_order_relaxed };
struct atomic_int { int v; };
struct atomic_uint { uint v; };
#define HZS_ATOMIC(name, expression) \
    template <class A, class T> T name(A* p, T v, memory_order) { T old = p->v; p->v = T(expression); return old; }
HZS_ATOMIC(atomic_fetch_add_explicit, old + v)
HZS_ATOMIC(atomic_fetch_min_explicit, v < old ? v : old)
HZS_ATOMIC(atomic_fetch_max_explicit, v > old ? v : old)
}  // namespace metal
