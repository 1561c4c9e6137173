//! Scales of symmetric formats: `value = s · code`, with codes from a fixed set.
//!
//! The objective is `E(s) = Σ wᵢ (xᵢ − s·cᵢ)²`, where `cᵢ` is the code nearest to `xᵢ / s`. For given codes the best
//! scale is `Σwxc / Σwc²`; for a given scale the best codes are the nearest. [`best_scale`] tries scales over a range
//! and descends alternately from the best of them. Where sub-blocks share a stored scale `d` under small integer
//! multipliers, [`fit_ladder`] chooses `d` and all multipliers together.

use wide::f32x8;

use super::block::{Block, Part, Snapped, reciprocal};

/// The set of values that a code can take.
pub(super) trait Codes: Copy {
    /// The codes nearest to the eight `v`.
    fn nearest(self, v: f32x8) -> f32x8;
    /// The most negative and the most positive code.
    fn ends(self) -> (f32, f32);
}

/// All integers of `LO..=HI`.
#[derive(Clone, Copy)]
pub(super) struct Linear<const LO: i32, const HI: i32>;

impl<const LO: i32, const HI: i32> Codes for Linear<LO, HI> {
    #[inline(always)]
    fn nearest(self, v: f32x8) -> f32x8 {
        round8(clamp8(v, LO as f32, HI as f32))
    }
    fn ends(self) -> (f32, f32) {
        (LO as f32, HI as f32)
    }
}

/// `v` limited to `lo..=hi`, in the form that compiles to one `max` and one `min`.
#[inline(always)]
pub(super) fn clamp(v: f32, lo: f32, hi: f32) -> f32 {
    let v = if v > lo { v } else { lo };
    if v < hi { v } else { hi }
}

/// Each of `v` limited to `lo..=hi`.
#[inline(always)]
pub(super) fn clamp8(v: f32x8, lo: f32, hi: f32) -> f32x8 {
    v.fast_max(f32x8::splat(lo)).fast_min(f32x8::splat(hi))
}

/// Adding 1.5·2^23 to a number below 2^22 leaves no room for a fraction.
const NO_FRACTION: f32 = 12_582_912.0;

/// Nearest integer, ties to even, for |v| < 2^22.
#[inline(always)]
pub(super) fn round(v: f32) -> f32 {
    (v + NO_FRACTION) - NO_FRACTION
}

/// [`round`] of each.
#[inline(always)]
pub(super) fn round8(v: f32x8) -> f32x8 {
    (v + f32x8::splat(NO_FRACTION)) - f32x8::splat(NO_FRACTION)
}

/// `step` where `v > middle`, else 0.
#[inline(always)]
pub(super) fn step_above(v: f32x8, middle: f32, step: f32) -> f32x8 {
    v.simd_gt(f32x8::splat(middle)) & f32x8::splat(step)
}

/// What one scale makes of a sub-block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    /// Σ w·x·c.
    pub(super) a: f32,
    /// Σ w·c².
    pub(super) b: f32,
    /// Σ w·(x − s·c)², up to a constant of the sub-block.
    pub(super) err: f32,
}

impl Moments {
    /// The best scale for these codes, and the error under it given that the error under `s` is `err`.
    pub(super) fn refit(self, s: f32) -> (f32, f32) {
        if self.b <= 0.0 {
            return (s, self.err);
        }
        let best = self.a / self.b;
        (best, self.err - self.b * (s - best) * (s - best))
    }
}

/// The codes of `part` at scale `s`.
#[inline]
pub(super) fn moments<C: Codes>(codes: C, part: Part<'_>, s: f32) -> Moments {
    let (scale, inv) = (f32x8::splat(s), f32x8::splat(reciprocal(s)));
    let (mut a, mut b, mut err) = (f32x8::ZERO, f32x8::ZERO, f32x8::ZERO);
    for (x, w, wx) in part.eights() {
        let c = codes.nearest(x * inv);
        let r = x - scale * c;
        a += wx * c;
        b += w * c * c;
        err += w * r * r;
    }
    Moments { a: sum(a), b: sum(b), err: sum(err) }
}

/// Writes the codes of `part` at scale `s`, less `lowest`.
pub(super) fn write_codes<C: Codes>(codes: C, part: Part<'_>, s: f32, out: &mut [u8]) {
    let (inv, lowest) = (f32x8::splat(reciprocal(s)), f32x8::splat(codes.ends().0));
    for ((x, _, _), out) in part.eights().zip(out.as_chunks_mut::<8>().0) {
        *out = (codes.nearest(x * inv) - lowest).to_array().map(|c| c as u8);
    }
}

/// Sum of lanes in a fixed tree.
#[inline(always)]
pub(super) fn sum(v: f32x8) -> f32 {
    let v = v.to_array();
    ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
}

/// Which scales [`best_scale`] tries: those that bring the largest magnitude to `lo..=hi` code units, in `steps`.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) lo: f32,
    pub(super) hi: f32,
    pub(super) steps: u32,
}

/// The scale that minimizes `E` over the range of `reach`, both signs where the codes are not symmetric; 0 where all
/// values are 0.
pub(super) fn best_scale<C: Codes>(codes: C, part: Part<'_>, reach: Reach) -> f32 {
    let peak = part.peak();
    if peak == 0.0 {
        return 0.0;
    }
    let (lo, hi) = codes.ends();
    let signs: &[f32] = if -lo == hi { &[1.0] } else { &[1.0, -1.0] };
    let (mut best, mut best_err) = (0.0, f32::INFINITY);
    for &sign in signs {
        for step in 0..reach.steps {
            let t = reach.lo + (reach.hi - reach.lo) * step as f32 / (reach.steps - 1).max(1) as f32;
            let s = sign * peak / t;
            let (s, err) = moments(codes, part, s).refit(s);
            if err < best_err {
                (best, best_err) = (s, err);
            }
        }
    }
    for _ in 0..4 {
        let (s, err) = moments(codes, part, best).refit(best);
        if err >= best_err {
            break;
        }
        (best, best_err) = (s, err);
    }
    best
}

/// The storable scale near `s` under which the nearest codes have the least error.
///
/// The neighbours of the rounded value matter where f16 is coarse against the codes: among its denormals, and for
/// 8-bit codes.
pub(super) fn snap_scale<C: Codes, const N: usize>(codes: C, block: &Block<N>, s: f32) -> Snapped {
    let first = block.snap(s);
    let mut best = (first, moments(codes, block.whole(), first.d).err);
    let bits = first.bits.to_bits();
    for bits in [bits.wrapping_sub(1), bits.wrapping_add(1)] {
        let near = block.at_bits(crate::f16::from_bits(bits));
        if !near.d.is_finite() {
            continue;
        }
        let err = moments(codes, block.whole(), near.d).err;
        if err < best.1 {
            best = (near, err);
        }
    }
    best.0
}

/// The error of a sub-block as a function of its scale.
pub(super) trait Curve {
    /// The best codes at scale `s`.
    fn at(&self, s: f32) -> Moments;
}

/// A sub-block whose codes are found element by element.
#[derive(Clone, Copy)]
pub(super) struct PartCurve<'a, C> {
    pub(super) codes: C,
    pub(super) part: Part<'a>,
}

impl<C: Codes> Curve for PartCurve<'_, C> {
    fn at(&self, s: f32) -> Moments {
        moments(self.codes, self.part, s)
    }
}

/// The multipliers that a sub-block can choose from: `first + step · k` for `k` in `0..count`.
#[derive(Clone, Copy)]
pub(super) struct Rungs {
    pub(super) first: i32,
    pub(super) step: i32,
    pub(super) count: i32,
}

impl Rungs {
    /// The multiplier of rung `k`.
    pub(super) fn multiplier(self, k: u8) -> f32 {
        (self.first + self.step * i32::from(k)) as f32
    }

    /// The last multiplier.
    fn last(self) -> f32 {
        (self.first + self.step * (self.count - 1)) as f32
    }

    /// The rungs on either side of multiplier `m`.
    fn around(self, m: f32) -> std::ops::RangeInclusive<u8> {
        let top = self.count - 1;
        let below = clamp((m - self.first as f32) / self.step as f32, 0.0, top as f32) as i32;
        below as u8..=(below + 1).min(top) as u8
    }
}

/// How [`fit_ladder`] searches.
#[derive(Clone, Copy)]
pub(super) struct LadderSearch<'a> {
    pub(super) rungs: Rungs,
    /// What a stored `d` is multiplied by, beside the rung.
    pub(super) unit: f32,
    /// Multiples of the first guess of `d` to try.
    pub(super) starts: &'a [f32],
}

/// A shared scale and the rung of each sub-block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder<const J: usize> {
    pub(super) d: Snapped,
    pub(super) k: [u8; J],
}

/// Chooses `d` and rungs `k` to minimize `Σⱼ Eⱼ(d · unit · rung(kⱼ))`, given the ideal scale of each sub-block.
///
/// First guess: the sub-block with the largest ideal scale stands on the end of the ladder. From the best of the
/// `starts` around it, `d` and rungs are improved in turn until nothing changes.
pub(super) fn fit_ladder<C: Curve, const J: usize>(
    curves: &[C; J],
    ideal: &[f32; J],
    search: LadderSearch<'_>,
    snap: impl Fn(f32) -> Snapped,
) -> Ladder<J> {
    let LadderSearch { rungs, unit, starts } = search;
    let place = |d: Snapped| -> (Ladder<J>, f32, f32) {
        let (mut k, mut total, mut a, mut b) = ([0u8; J], 0f32, 0f32, 0f32);
        for ((k, curve), &ideal) in k.iter_mut().zip(curves).zip(ideal) {
            let scale = d.d * unit;
            let mut best: Option<(Moments, f32)> = None;
            for rung in rungs.around(ideal * reciprocal(scale)) {
                let m = rungs.multiplier(rung);
                let moments = curve.at(scale * m);
                if best.is_none_or(|(best, _)| moments.err < best.err) {
                    best = Some((moments, m));
                    *k = rung;
                }
            }
            if let Some((moments, m)) = best {
                total += moments.err;
                a += m * moments.a;
                b += m * m * moments.b;
            }
        }
        (Ladder { d, k }, total, if b > 0.0 { a / b } else { 0.0 })
    };
    let widest = ideal.iter().fold(0f32, |m, &s| if s.abs() > m.abs() { s } else { m });
    let zero = snap(0.0);
    if widest == 0.0 {
        return place(zero).0;
    }
    let end = if (rungs.first as f32).abs() > rungs.last() { rungs.first as f32 } else { rungs.last() };
    let guess = widest / (end * unit);
    let mut best = place(snap(guess));
    // Where weights differ, the widest sub-block may be the least of all cares.
    let (weightiest, _) = curves.iter().zip(ideal).fold((0.0, 0.0), |most, (curve, &s)| {
        let gain = curve.at(0.0).err - curve.at(s).err;
        if gain > most.1 { (s, gain) } else { most }
    });
    for start in [snap(weightiest / (end * unit)), zero] {
        if start != best.0.d {
            let next = place(start);
            if next.1 < best.1 {
                best = next;
            }
        }
    }
    for &start in starts {
        let next = place(snap(guess * start));
        if next.1 < best.1 {
            best = next;
        }
    }
    for _ in 0..6 {
        let d = snap(best.2 / unit);
        if d == best.0.d {
            break;
        }
        let next = place(d);
        if next.1 >= best.1 {
            break;
        }
        best = next;
    }
    best.0
}
