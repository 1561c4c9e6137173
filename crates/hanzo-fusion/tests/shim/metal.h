// Metal's words, as far as kernels use them. Stands for <metal_stdlib>. With HZS_ADDRESS_SPACES, clang checks address spaces as Metal's
// compiler does: each is a type of its own (such text is only checked, not run). Attributes in [[…]] that it does not know are ignored, as
// C++ asks.
#pragma once
#define HZ_SHIM
#include "fibre.h"
#ifdef HZS_ADDRESS_SPACES
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define HZ_SHARED static threadgroup
namespace metal {
typedef unsigned uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
#ifdef HZS_ADDRESS_SPACES
#define HZS_VECTOR(type, name) typedef type name##2 __attribute__((ext_vector_type(2))), name##4 __attribute__((ext_vector_type(4)));
#else
template <class T> struct vec2 { T x, y; };
template <class T> struct vec4 { T x, y, z, w; };
#define HZS_VECTOR(type, name) typedef vec2<type> name##2; typedef vec4<type> name##4;
#endif
HZS_VECTOR(uint, uint)
HZS_VECTOR(int, int)
HZS_VECTOR(float, float)
HZS_VECTOR(int8_t, char)
HZS_VECTOR(uint8_t, uchar)
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
// Where a lane's elements are is Metal's secret: here each lane holds all of a matrix, and computes all of it.
struct ulong2 { unsigned long x, y; ulong2(unsigned long x, unsigned long y) : x(x), y(y) {} };
template <class T, int R, int C> struct simdgroup_matrix {
    T v[R * C];
    T (&thread_elements())[R * C] { return v; }
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, R, C> m;
    for (T& v : m.v) v = value;
    return m;
}
inline void hzs_copy(float& to, float from) { to = from; }
template <class H> void hzs_copy(half& to, const H& from) { to.bits = from.bits; }
template <class T, class P> void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, P p, unsigned long stride, ulong2 origin = ulong2(0, 0), bool transposed = false) {
    for (unsigned i = 0; i < 8; i++)
        for (unsigned j = 0; j < 8; j++)
            hzs_copy(m.v[transposed ? j * 8 + i : i * 8 + j], p[(i + origin.y) * stride + j + origin.x]);
}
template <class P> void simdgroup_store(const simdgroup_float8x8& m, P p, unsigned long stride) {
    // Lane l writes row l / 4, columns 2·(l % 4) and the next.
    for (unsigned j = 0; j < 2; j++) p[hzs::lane() / 4 * stride + hzs::lane() % 4 * 2 + j] = m.v[hzs::lane() * 2 + j];
}
inline void simdgroup_multiply_accumulate(simdgroup_float8x8& d, const simdgroup_half8x8& a, const simdgroup_half8x8& b, const simdgroup_float8x8& c) {
    simdgroup_float8x8 sum = c;
    for (unsigned i = 0; i < 8; i++)
        for (unsigned j = 0; j < 8; j++)
            for (unsigned k = 0; k < 8; k++) sum.v[i * 8 + j] = std::fma(float(a.v[i * 8 + k]), float(b.v[k * 8 + j]), sum.v[i * 8 + j]);
    d = sum;
}
}  // namespace metal
