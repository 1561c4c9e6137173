// The accumulator's 16 × 16 sums, of which a lane holds HZ_SUMS; which, HZ_FRAG_ROW and HZ_FRAG_COLUMN say.
HZ_FN uint hz_frag_at(uint i, uint stride) { return HZ_FRAG_ROW(i) * stride + HZ_FRAG_COLUMN(i); }
HZ_FN void hz_frag_load(hz_frag_acc_f32& f, const float* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) f.r[i] = p[hz_frag_at(i, stride)];
}
HZ_FN void hz_frag_load(hz_frag_acc_i32& f, const int* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) f.r[i] = p[hz_frag_at(i, stride)];
}
template <class F, class T> HZ_FN void hz_frag_store(const F& f, T* p, uint stride) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) p[hz_frag_at(i, stride)] = f.r[i];
}
template <class F> HZ_FN void hz_frag_zero(F& f) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) f.r[i] = 0;
}
// Element by element: f32 and i32 accumulators lie alike.
template <class F, class T> HZ_FN void hz_frag_spread_rows(F& f, const T* p) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) f.r[i] = p[HZ_FRAG_ROW(i)];
}
template <class F, class T> HZ_FN void hz_frag_spread_columns(F& f, const T* p) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) f.r[i] = p[HZ_FRAG_COLUMN(i)];
}
HZ_FN void hz_frag_float(hz_frag_acc_f32& c, const hz_frag_acc_i32& a) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) c.r[i] = float(a.r[i]);
}
HZ_FN void hz_frag_mul(hz_frag_acc_f32& c, const hz_frag_acc_f32& a, const hz_frag_acc_f32& b) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) c.r[i] = a.r[i] * b.r[i];
}
HZ_FN void hz_frag_fma(hz_frag_acc_f32& c, const hz_frag_acc_f32& a, const hz_frag_acc_f32& b) {
    HZ_UNROLL
    for (uint i = 0; i < HZ_SUMS; ++i) c.r[i] = hz_fma(a.r[i], b.r[i], c.r[i]);
}
