// Matrix fragments of 16 × 16: of halves, four of Metal's 8 × 8; of bytes, for which Metal has no unit, packed dot products: lane l sums row
// l / 2, columns 8·(l % 2) to 8·(l % 2) + 7. So accumulators of f32 and of i32 do not lie alike, and there is no hz_frag_float.
struct hz_frag_a_f16 { simdgroup_half8x8 m[4]; };
struct hz_frag_b_f16 { simdgroup_half8x8 m[4]; };
struct hz_frag_acc_f32 { simdgroup_float8x8 m[4]; };
struct hz_frag_a_i8 { uint r[4]; };
struct hz_frag_b_i8 { uint r[2]; };
struct hz_frag_acc_i32 { int r[8]; };
#define HZ_ROW (hz_lane / 2)
#define HZ_HALF (hz_lane % 2)
HZ_FN device const half* hz_halves(device const hz_f16* p) { return (device const half*)p; }
HZ_FN device const half* hz_halves(device const uint* p) { return (device const half*)p; }
HZ_FN uint hz_word(device const uchar* p) { return *(device const uint*)p; }
HZ_FN uint hz_word(device const uint* p) { return *p; }
#if !defined(HZ_SHIM) || defined(HZS_ADDRESS_SPACES)
HZ_FN threadgroup const half* hz_halves(threadgroup const hz_f16* p) { return (threadgroup const half*)p; }
HZ_FN threadgroup const half* hz_halves(threadgroup const uint* p) { return (threadgroup const half*)p; }
HZ_FN uint hz_word(threadgroup const uchar* p) { return *(threadgroup const uint*)p; }
HZ_FN uint hz_word(threadgroup const uint* p) { return *p; }
#endif
// Elements of which memory's hold several: factors packed in words.
#define HZ_PACKED(p, size) uint(sizeof(*(p)) / size)
// Part m of a fragment is rows 8·(m / 2), columns 8·(m % 2). Memory has B's columns one after the other: it is loaded transposed.
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_a_f16& f, P p, uint stride, uint) {
    stride *= HZ_PACKED(p, 2);
    for (uint m = 0; m < 4; ++m) simdgroup_load(f.m[m], hz_halves(p) + m / 2 * 8 * stride + m % 2 * 8, stride);
}
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_b_f16& f, P p, uint stride, uint) {
    stride *= HZ_PACKED(p, 2);
    for (uint m = 0; m < 4; ++m) simdgroup_load(f.m[m], hz_halves(p) + m % 2 * 8 * stride + m / 2 * 8, stride, ulong2(0, 0), true);
}
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_acc_f32& f, P p, uint stride, uint) {
    for (uint m = 0; m < 4; ++m) simdgroup_load(f.m[m], p + m / 2 * 8 * stride + m % 2 * 8, stride);
}
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_a_i8& f, P p, uint stride, uint hz_lane) {
    for (uint i = 0; i < 4; ++i) f.r[i] = hz_word(p + HZ_ROW * stride + 4 * i / HZ_PACKED(p, 1));
}
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_b_i8& f, P p, uint stride, uint hz_lane) {
    for (uint i = 0; i < 2; ++i) f.r[i] = hz_word(p + HZ_ROW * stride + (8 * HZ_HALF + 4 * i) / HZ_PACKED(p, 1));
}
template <class P> HZ_FN void hz_frag_load_(thread hz_frag_acc_i32& f, P p, uint stride, uint hz_lane) {
    for (uint i = 0; i < 8; ++i) f.r[i] = p[HZ_ROW * stride + 8 * HZ_HALF + i];
}
template <class P> HZ_FN void hz_frag_store_(thread hz_frag_acc_f32& f, P p, uint stride, uint) {
    for (uint m = 0; m < 4; ++m) simdgroup_store(f.m[m], p + m / 2 * 8 * stride + m % 2 * 8, stride);
}
template <class P> HZ_FN void hz_frag_store_(thread hz_frag_acc_i32& f, P p, uint stride, uint hz_lane) {
    for (uint i = 0; i < 8; ++i) p[HZ_ROW * stride + 8 * HZ_HALF + i] = f.r[i];
}
HZ_FN void hz_frag_zero(thread hz_frag_acc_f32& f) {
    for (uint m = 0; m < 4; ++m) f.m[m] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
HZ_FN void hz_frag_zero(thread hz_frag_acc_i32& f) {
    for (uint i = 0; i < 8; ++i) f.r[i] = 0;
}
// A vector: rows that lie on each other.
template <class P> HZ_FN void hz_frag_spread_columns(thread hz_frag_acc_f32& f, P p) {
    for (uint m = 0; m < 4; ++m) simdgroup_load(f.m[m], p + m % 2 * 8, 0);
}
template <class P> HZ_FN void hz_frag_spread_rows(thread hz_frag_acc_f32& f, P p) {
    for (uint m = 0; m < 4; ++m) simdgroup_load(f.m[m], p + m / 2 * 8, 0, ulong2(0, 0), true);
}
// Element by element, whichever a lane holds.
#define HZ_EACH(m, e) for (uint e = 0; e < sizeof((m).thread_elements()) / sizeof(float); ++e)
HZ_FN void hz_frag_mul(thread hz_frag_acc_f32& c, thread hz_frag_acc_f32& a, thread hz_frag_acc_f32& b) {
    for (uint m = 0; m < 4; ++m)
        HZ_EACH(c.m[m], e) c.m[m].thread_elements()[e] = a.m[m].thread_elements()[e] * b.m[m].thread_elements()[e];
}
HZ_FN void hz_frag_fma(thread hz_frag_acc_f32& c, thread hz_frag_acc_f32& a, thread hz_frag_acc_f32& b) {
    for (uint m = 0; m < 4; ++m)
        HZ_EACH(c.m[m], e)
            c.m[m].thread_elements()[e] = hz_fma(a.m[m].thread_elements()[e], b.m[m].thread_elements()[e], c.m[m].thread_elements()[e]);
}
HZ_FN void hz_frag_mul_add_(thread hz_frag_acc_f32& c, thread hz_frag_a_f16& a, thread hz_frag_b_f16& b, uint) {
    for (uint m = 0; m < 4; ++m)
        for (uint k = 0; k < 2; ++k) simdgroup_multiply_accumulate(c.m[m], a.m[m / 2 * 2 + k], b.m[k * 2 + m % 2], c.m[m]);
}
HZ_FN void hz_frag_mul_add_(thread hz_frag_acc_i32& c, thread hz_frag_a_i8& a, thread hz_frag_b_i8& b, uint hz_lane) {
    for (uint i = 0; i < 8; ++i)
        for (uint w = 0; w < 4; ++w) c.r[i] = hz_dot4(a.r[w], hz_shuffle(b.r[w % 2], 2 * (8 * HZ_HALF + i) + w / 2), c.r[i]);
}
#define hz_frag_load(f, p, stride) hz_frag_load_(f, p, stride, HZ_LOCAL_ID % HZ_SUBGROUP)
#define hz_frag_store(f, p, stride) hz_frag_store_(f, p, stride, HZ_LOCAL_ID % HZ_SUBGROUP)
#define hz_frag_mul_add(c, a, b) hz_frag_mul_add_(c, a, b, HZ_LOCAL_ID % HZ_SUBGROUP)

