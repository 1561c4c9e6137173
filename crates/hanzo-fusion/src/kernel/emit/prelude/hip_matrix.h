// Matrix fragments of 16 × 16 for AMD's units. In A lane l holds row l % 16, in B column l % 16: on gfx11 (wmma, waves of 32) all of it, so
// that two lanes hold the same; on gfx9 (mfma, waves of 64) the quarter that l / 16 counts. Other architectures have no fragments here.
#if defined(__GFX9__)
static_assert(HZ_SUBGROUP == 64, "mfma is of 64 lanes");
#define HZ_SHARE 4
#define HZ_SUMS 4
#define HZ_FRAG_ROW(i) (HZ_LOCAL_ID % HZ_SUBGROUP / 16 * 4 + (i))
#elif defined(__GFX11__) || defined(HZ_SHIM)
static_assert(HZ_SUBGROUP == 32, "wmma is of 32 lanes");
#define HZ_SHARE 1
#define HZ_SUMS 8
#define HZ_FRAG_ROW(i) (2 * (i) + HZ_LOCAL_ID % HZ_SUBGROUP / 16)
#else
#error "no matrix units known for this architecture"
#endif
struct hz_frag_a_f16 { uint r[8 / HZ_SHARE]; };
struct hz_frag_b_f16 { uint r[8 / HZ_SHARE]; };
struct hz_frag_acc_f32 { float r[HZ_SUMS]; };
struct hz_frag_a_i8 { uint r[4 / HZ_SHARE]; };
struct hz_frag_b_i8 { uint r[4 / HZ_SHARE]; };
struct hz_frag_acc_i32 { int r[HZ_SUMS]; };
typedef uint hz_any_word __attribute__((may_alias));
template <uint N, class T> HZ_FN void hz_frag_words(uint (&r)[N], const T* p, uint stride) {
    const hz_any_word* row = reinterpret_cast<const hz_any_word*>(p + HZ_LOCAL_ID % 16 * stride);
    HZ_UNROLL
    for (uint i = 0; i < N; ++i) r[i] = row[HZ_SHARE == 1 ? i : HZ_LOCAL_ID % HZ_SUBGROUP / 16 * N + i];
}
#define HZ_FRAG_COLUMN(i) (HZ_LOCAL_ID % 16)
template <class F> HZ_FN void hz_frag_load(F& f, const hz_f16* p, uint stride) { hz_frag_words(f.r, p, stride); }
template <class F> HZ_FN void hz_frag_load(F& f, const uchar* p, uint stride) { hz_frag_words(f.r, p, stride); }
// Factors packed in words.
template <class F> HZ_FN void hz_frag_load(F& f, const uint* p, uint stride) { hz_frag_words(f.r, p, stride); }
#ifndef HZ_SHIM
#if defined(__GFX9__)
typedef _Float16 hz_halves __attribute__((ext_vector_type(4)));
typedef float hz_sums_f32 __attribute__((ext_vector_type(4)));
typedef int hz_sums_i32 __attribute__((ext_vector_type(4)));
#else
typedef _Float16 hz_halves __attribute__((ext_vector_type(16)));
typedef int hz_bytes __attribute__((ext_vector_type(4)));
typedef float hz_sums_f32 __attribute__((ext_vector_type(8)));
typedef int hz_sums_i32 __attribute__((ext_vector_type(8)));
#endif
HZ_FN void hz_mma_f16(float (&c)[HZ_SUMS], const uint (&a)[8 / HZ_SHARE], const uint (&b)[8 / HZ_SHARE]) {
    hz_halves x, y;
    hz_sums_f32 sums;
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
    __builtin_memcpy(&sums, c, sizeof sums);
#if defined(__GFX9__)
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sums, 0, 0, 0);
#else
    sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sums);
#endif
    __builtin_memcpy(c, &sums, sizeof sums);
}
HZ_FN void hz_mma_i8(int (&c)[HZ_SUMS], const uint (&a)[4 / HZ_SHARE], const uint (&b)[4 / HZ_SHARE]) {
    hz_sums_i32 sums;
    __builtin_memcpy(&sums, c, sizeof sums);
#if defined(__gfx908__) || defined(__gfx90a__)
    sums = __builtin_amdgcn_mfma_i32_16x16x16i8(int(a[0]), int(b[0]), sums, 0, 0, 0);
#elif defined(__GFX9__)
    // From gfx940 on, 32 products at a time: the upper half of each lane's eight bytes is zero.
    sums = __builtin_amdgcn_mfma_i32_16x16x32_i8(long(a[0]), long(b[0]), sums, 0, 0, 0);
#else
    hz_bytes x, y;
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
    sums = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x, true, y, sums, false);
#endif
    __builtin_memcpy(c, &sums, sizeof sums);
}
#endif
HZ_FN void hz_frag_mul_add(hz_frag_acc_f32& c, const hz_frag_a_f16& a, const hz_frag_b_f16& b) { hz_mma_f16(c.r, a.r, b.r); }
HZ_FN void hz_frag_mul_add(hz_frag_acc_i32& c, const hz_frag_a_i8& a, const hz_frag_b_i8& b) { hz_mma_i8(c.r, a.r, b.r); }

