// What the kernel below is written in, as CUDA C++. Compile with --fmad=false: f32 operations round once each.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef ushort hz_f16;
#define HZ_FN static __device__ __forceinline__
#define HZ_KERNEL(n) extern "C" __global__ void __launch_bounds__(n)
#define HZ_SHARED __shared__
#define HZ_TABLE static __device__ const
#define HZ_UNROLL _Pragma("unroll")
#define HZ_LOCAL_ID (uint(threadIdx.x))
#define HZ_WORKGROUP_ID blockIdx
#define HZ_NUM_WORKGROUPS gridDim
#define HZ_WIDE(type, p, i) (*reinterpret_cast<const type*>((p) + (i)))
#define HZ_FULL 0xffffffffu
HZ_FN void hz_barrier() { __syncthreads(); }
HZ_FN float hz_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HZ_FN float hz_abs(float a) { return fabsf(a); }
HZ_FN float hz_sqrt(float a) { return __fsqrt_rn(a); }
HZ_FN float hz_round_even(float a) { return rintf(a); }
HZ_FN float hz_floor(float a) { return floorf(a); }
HZ_FN uint hz_popcount(uint a) { return uint(__popc(a)); }
HZ_FN uint hz_bits(float a) { return __float_as_uint(a); }
HZ_FN float hz_float(uint a) { return __uint_as_float(a); }
HZ_FN uchar hz_u8(uint a) { return uchar(a); }
HZ_FN ushort hz_u16(uint a) { return ushort(a); }
#ifndef HZ_SHIM
HZ_FN float hz_f16_to_f32(hz_f16 a) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r; }
HZ_FN hz_f16 hz_f32_to_f16(float a) { hz_f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
HZ_FN int hz_dot4_us(uint a, uint b, int c) { int r; asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
#endif
HZ_FN int hz_dot4(uint a, uint b, int c) { return __dp4a(int(a), int(b), c); }
template <class T> HZ_FN T hz_min(T a, T b) { return a < b ? a : b; }
template <class T> HZ_FN T hz_max(T a, T b) { return a > b ? a : b; }
template <class T> HZ_FN T hz_shuffle_xor(T a, uint mask) { return __shfl_xor_sync(HZ_FULL, a, int(mask)); }
template <class T> HZ_FN T hz_shuffle(T a, uint lane) { return __shfl_sync(HZ_FULL, a, int(lane)); }
HZ_FN uint hz_ballot(bool a) { return __ballot_sync(HZ_FULL, a); }
template <class T> HZ_FN T hz_reduce_add(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = T(a + hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_min(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_min(a, hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_reduce_max(T a) { for (uint o = HZ_SUBGROUP / 2; o; o /= 2) a = hz_max(a, hz_shuffle_xor(a, o)); return a; }
template <class T> HZ_FN T hz_atomic_add(T* p, T v) { return atomicAdd(p, v); }
template <class T> HZ_FN T hz_atomic_min(T* p, T v) { return atomicMin(p, v); }
template <class T> HZ_FN T hz_atomic_max(T* p, T v) { return atomicMax(p, v); }

