// Matrix fragments of 16 × 16 for mma.sync, in the registers that PTX gives them: lane 4·g + t holds rows g and g + 8 of A and of the
// accumulator, and columns g and g + 8 of B. One layout does for all architectures: the smaller products of sm_75 take parts of it.
struct hz_frag_a_f16 { uint r[4]; };
struct hz_frag_b_f16 { uint r[4]; };
struct hz_frag_acc_f32 { float r[8]; };
struct hz_frag_a_i8 { uint r[2]; };
struct hz_frag_b_i8 { uint r[2]; };
struct hz_frag_acc_i32 { int r[8]; };
#define HZ_G (HZ_LOCAL_ID % HZ_SUBGROUP / 4)
#define HZ_T (HZ_LOCAL_ID % 4)
static_assert(HZ_SUBGROUP == 32, "mma.sync is of 32 lanes");
template <class T> HZ_FN uint hz_word(const T* p) { return *reinterpret_cast<const uint*>(p); }
HZ_FN void hz_frag_load(hz_frag_a_f16& f, const hz_f16* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < 4; ++i) f.r[i] = hz_word(p + (HZ_G + i % 2 * 8) * stride + HZ_T * 2 + i / 2 * 8);
}
HZ_FN void hz_frag_load(hz_frag_b_f16& f, const hz_f16* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < 4; ++i) f.r[i] = hz_word(p + (HZ_G + i / 2 * 8) * stride + HZ_T * 2 + i % 2 * 8);
}
// Bytes lie alike in A and B.
template <class F> HZ_FN void hz_frag_load(F& f, const uchar* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < 2; ++i) f.r[i] = hz_word(p + (HZ_G + i * 8) * stride + HZ_T * 4);
}
// Factors packed in words.
HZ_FN void hz_frag_load(hz_frag_a_f16& f, const uint* p, uint stride) { hz_frag_load(f, reinterpret_cast<const hz_f16*>(p), 2 * stride); }
HZ_FN void hz_frag_load(hz_frag_b_f16& f, const uint* p, uint stride) { hz_frag_load(f, reinterpret_cast<const hz_f16*>(p), 2 * stride); }
HZ_FN void hz_frag_load(hz_frag_a_i8& f, const uint* p, uint stride) { hz_frag_load(f, reinterpret_cast<const uchar*>(p), 4 * stride); }
HZ_FN void hz_frag_load(hz_frag_b_i8& f, const uint* p, uint stride) { hz_frag_load(f, reinterpret_cast<const uchar*>(p), 4 * stride); }
#define HZ_SUMS 8
#define HZ_FRAG_ROW(i) (HZ_G + (i) / 2 % 2 * 8)
#define HZ_FRAG_COLUMN(i) ((i) / 4 * 8 + HZ_T * 2 + (i) % 2)
#ifndef HZ_SHIM
// 16 × 8 × 16: four words of A, two of B, four sums.
HZ_FN void hz_mma_f16(float* c, const uint* a, const uint* b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    HZ_UNROLL
    for (uint k = 0; k < 2; ++k)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
#endif
}
// 16 × 8 × 16: two words of A, one of B, four sums.
HZ_FN void hz_mma_i8(int* c, const uint* a, const uint* b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    HZ_UNROLL
    for (uint m = 0; m < 2; ++m)
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[2 * m]), "+r"(c[2 * m + 1]) : "r"(a[m]), "r"(b[0]));
#endif
}
#endif
HZ_FN void hz_frag_mul_add(hz_frag_acc_f32& c, const hz_frag_a_f16& a, const hz_frag_b_f16& b) {
    hz_mma_f16(c.r, a.r, b.r);
    hz_mma_f16(c.r + 4, a.r, b.r + 2);
}
HZ_FN void hz_frag_mul_add(hz_frag_acc_i32& c, const hz_frag_a_i8& a, const hz_frag_b_i8& b) {
    hz_mma_i8(c.r, a.r, b.r);
    hz_mma_i8(c.r + 4, a.r, b.r + 1);
}

