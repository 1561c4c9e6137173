//! Scales and offsets of asymmetric formats: `value = s · q + o`, with codes `q` of `0..=HI`.
//!
//! The objective is `E(s, o) = Σ wᵢ (xᵢ − s·qᵢ − o)²` with the nearest codes. For given codes the best `(s, o)` solves a
//! 2×2 linear system; the search alternates that with choosing codes, from several first guesses that cut off
//! more or less of either end of the range.

use wide::f32x8;

use super::block::{Block, Part, Snapped, reciprocal};
use super::scale::{clamp, clamp8, round, round8, sum};

/// What does not depend on the codes of a sub-block.
#[derive(Clone, Copy)]
struct Sums {
    w: f32,
    x: f32,
}

/// What one `(s, o)` makes of a sub-block.
#[derive(Clone, Copy, Default)]
struct Moments {
    /// Σ w·q, Σ w·q², Σ w·x·q.
    q: f32,
    qq: f32,
    xq: f32,
    /// Σ w·(x − s·q − o)².
    err: f32,
}

#[inline]
fn moments<const HI: i32>(part: Part<'_>, s: f32, o: f32) -> Moments {
    let (scale, inv, offset) = (f32x8::splat(s), f32x8::splat(reciprocal(s)), f32x8::splat(o));
    let (mut sq, mut sqq, mut sxq, mut err) = (f32x8::ZERO, f32x8::ZERO, f32x8::ZERO, f32x8::ZERO);
    for (x, w, wx) in part.eights() {
        let q = codes::<HI>(x, inv, offset);
        let r = x - scale * q - offset;
        let wq = w * q;
        sq += wq;
        sqq += wq * q;
        sxq += wx * q;
        err += w * r * r;
    }
    Moments { q: sum(sq), qq: sum(sqq), xq: sum(sxq), err: sum(err) }
}

#[inline(always)]
fn codes<const HI: i32>(x: f32x8, inv: f32x8, o: f32x8) -> f32x8 {
    round8(clamp8((x - o) * inv, 0.0, HI as f32))
}

/// Writes the codes of `part` at `(s, o)`.
pub(super) fn write_codes<const HI: i32>(part: Part<'_>, s: f32, o: f32, out: &mut [u8]) {
    let (inv, o) = (f32x8::splat(reciprocal(s)), f32x8::splat(o));
    for ((x, _, _), out) in part.eights().zip(out.as_chunks_mut::<8>().0) {
        *out = codes::<HI>(x, inv, o).to_array().map(|q| q as u8);
    }
}

/// Scale and offset of a sub-block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Affine {
    pub(super) s: f32,
    pub(super) o: f32,
}

/// Least squares for given codes; with `sunk`, offsets above 0 are not allowed (the K formats store `−o` unsigned).
fn solve(m: Moments, sums: Sums, sunk: bool, now: Affine) -> Affine {
    let det = sums.w * m.qq - m.q * m.q;
    if det > 1e-6 * sums.w * m.qq {
        let s = (sums.w * m.xq - m.q * sums.x) / det;
        let o = (sums.x - s * m.q) / sums.w;
        if s > 0.0 && !(sunk && o > 0.0) {
            return Affine { s, o };
        }
    }
    if sunk && m.qq > 0.0 && m.xq > 0.0 { Affine { s: m.xq / m.qq, o: 0.0 } } else { now }
}

/// The `(s, o)` that minimizes `E`; `s = 0` and the mean as `o` where all values are equal.
///
/// First guesses cut the fractions `cuts` off the range, in all pairs for its low and its high end.
pub(super) fn best_affine<const HI: i32>(part: Part<'_>, cuts: &[f32], sunk: bool) -> Affine {
    let sums = Sums { w: part.w.iter().sum(), x: part.wx.iter().sum() };
    let (mut lo, mut hi) =
        part.x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    if sunk {
        (lo, hi) = (lo.min(0.0), hi.max(lo.min(0.0)));
    }
    let range = hi - lo;
    if range <= 0.0 {
        return Affine { s: 0.0, o: lo };
    }
    let mut best = (Affine::default(), f32::INFINITY);
    let mut start = |low: f32, high: f32| {
        let o = lo + low * range;
        let o = if sunk { o.min(0.0) } else { o };
        let s = (hi - high * range - o) / HI as f32;
        if s > 0.0 {
            descend::<HI>(part, sums, sunk, Affine { s, o }, 2, &mut best);
        }
    };
    for &low in cuts {
        for &high in cuts {
            start(low, high);
        }
    }
    let at = best.0;
    descend::<HI>(part, sums, sunk, at, 6, &mut best);
    best.0
}

/// Alternates codes and least squares from `at`, keeping the best seen.
fn descend<const HI: i32>(
    part: Part<'_>,
    sums: Sums,
    sunk: bool,
    mut at: Affine,
    steps: u32,
    best: &mut (Affine, f32),
) {
    for _ in 0..steps {
        let m = moments::<HI>(part, at.s, at.o);
        if m.err < best.1 {
            *best = (at, m.err);
        }
        let next = solve(m, sums, sunk, at);
        if next == at {
            break;
        }
        at = next;
    }
}

/// Rounds `(s, o)` to f16, trying the neighbours where rounding is coarse, and zeros, which are exact.
pub(super) fn snap_affine<const HI: i32, const N: usize>(block: &Block<N>, at: Affine) -> (Snapped, Snapped) {
    let (s, o) = (block.snap(at.s), block.snap(at.o));
    let zero = block.snap(0.0);
    let mut best = (zero, zero, moments::<HI>(block.whole(), 0.0, 0.0).err);
    for ds in [0u16, 1, u16::MAX] {
        for dn in [0u16, 1, u16::MAX] {
            let s = block.at_bits(crate::f16::from_bits(s.bits.to_bits().wrapping_add(ds)));
            let o = block.at_bits(crate::f16::from_bits(o.bits.to_bits().wrapping_add(dn)));
            if !s.d.is_finite() || !o.d.is_finite() || s.d < 0.0 {
                continue;
            }
            let err = moments::<HI>(block.whole(), s.d, o.d).err;
            if err < best.2 {
                best = (s, o, err);
            }
        }
    }
    (best.0, best.1)
}

/// Shared scales of a K block and the integers of its sub-blocks: `value = d·sc·q − dmin·m`.
#[derive(Clone, Copy)]
pub(super) struct Pairs<const J: usize> {
    pub(super) d: Snapped,
    pub(super) dmin: Snapped,
    pub(super) sc: [u8; J],
    pub(super) m: [u8; J],
}

impl<const J: usize> Pairs<J> {
    /// Scale and offset of sub-block `j`, as the decoder computes them.
    pub(super) fn affine(&self, j: usize) -> Affine {
        Affine { s: self.d.d * f32::from(self.sc[j]), o: -(self.dmin.d * f32::from(self.m[j])) }
    }
}

/// Chooses `d`, `dmin` and integers up to `top` to minimize the error of all sub-blocks, given their ideal `(s, o)`.
///
/// From the super-scales that give the largest, or the weightiest, sub-block the integer `top`, the integers are improved one step at a time around their ideal, then `d` and `dmin`
/// by least squares over the block, in turn until nothing gets better.
pub(super) fn fit_pairs<const HI: i32, const J: usize>(
    parts: &[Part<'_>; J],
    ideal: &[Affine; J],
    top: u8,
    snap: impl Fn(f32) -> Snapped,
) -> Pairs<J> {
    let place = |d: Snapped, dmin: Snapped| -> (Pairs<J>, f32, [f32; 5]) {
        let mut pairs = Pairs { d, dmin, sc: [0; J], m: [0; J] };
        // Normal equations of d and dmin: Σ over elements of (sc·q)², (sc·q)·m, m², x·sc·q, x·m.
        let (mut total, mut eq) = (0f32, [0f32; 5]);
        for (j, (&part, at)) in parts.iter().zip(ideal).enumerate() {
            let nearest = |v: f32| round(clamp(v, 0.0, f32::from(top)));
            let (mut sc, mut m) = (nearest(at.s * reciprocal(d.d)), nearest(-at.o * reciprocal(dmin.d)));
            let mut best = moments::<HI>(part, d.d * sc, -(dmin.d * m));
            for _ in 0..4 {
                let (sc0, m0) = (sc, m);
                for (ds, dm) in [(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (1.0, 1.0), (-1.0, -1.0)] {
                    let (sc1, m1) = (sc0 + ds, m0 + dm);
                    if sc1 < 0.0 || m1 < 0.0 || sc1 > f32::from(top) || m1 > f32::from(top) {
                        continue;
                    }
                    let next = moments::<HI>(part, d.d * sc1, -(dmin.d * m1));
                    if next.err < best.err {
                        (best, sc, m) = (next, sc1, m1);
                    }
                }
                if (sc, m) == (sc0, m0) {
                    break;
                }
            }
            let (w, x): (f32, f32) = (part.w.iter().sum(), part.wx.iter().sum());
            total += best.err;
            for (sum, term) in
                eq.iter_mut().zip([sc * sc * best.qq, sc * m * best.q, m * m * w, sc * best.xq, m * x])
            {
                *sum += term;
            }
            (pairs.sc[j], pairs.m[j]) = (sc as u8, m as u8);
        }
        (pairs, total, eq)
    };
    let unit = |s: f32| snap(s / f32::from(top));
    let peak = |f: fn(&Affine) -> f32| ideal.iter().map(f).fold(0f32, f32::max);
    let mut best = place(unit(peak(|a| a.s)), unit(peak(|a| -a.o)));
    // Where weights differ, the largest sub-block may be the least of all cares.
    let energy = |part: &Part<'_>| part.x.iter().zip(part.wx).map(|(x, wx)| x * wx).sum::<f32>();
    let (heaviest, _) = ideal.iter().zip(parts).fold((Affine::default(), 0.0), |most, (&at, part)| {
        let energy = energy(part);
        if energy > most.1 { (at, energy) } else { most }
    });
    for start in [heaviest, Affine::default()] {
        let (d, dmin) = (unit(start.s), unit((-start.o).max(0.0)));
        if (d, dmin) != (best.0.d, best.0.dmin) {
            let next = place(d, dmin);
            if next.1 < best.1 {
                best = next;
            }
        }
    }
    for _ in 0..4 {
        let [ss, sm, mm, xs, xm] = best.2;
        // x ≈ d·(sc·q) − dmin·m.
        let det = ss * mm - sm * sm;
        let (d, dmin) = if det > 1e-6 * ss * mm {
            ((xs * mm - xm * sm) / det, (xs * sm - xm * ss) / det)
        } else if ss > 0.0 {
            (xs / ss, 0.0)
        } else {
            break;
        };
        let (d, dmin) = (snap(d), snap(dmin.max(0.0)));
        if d.d < 0.0 || (d, dmin) == (best.0.d, best.0.dmin) {
            break;
        }
        let next = place(d, dmin);
        if next.1 >= best.1 {
            break;
        }
        best = next;
    }
    best.0
}
