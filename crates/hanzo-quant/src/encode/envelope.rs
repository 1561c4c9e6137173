//! The error of a codebook choice as a function of the scale: lower envelopes of lines.
//!
//! Taking entry `e` at scale `s > 0` for a vector `x` costs `Σ w (x − s·e)² = Σ w x² + s · (s·b − 2·a)` with
//! `a = Σ w x e` and `b = Σ w e²`, neither of which depends on `s`. The best entry at every scale at once is therefore the
//! lower envelope of the lines `s·b − 2·a`, of which a codebook of hundreds of entries has about ten. The envelopes of
//! neighbours add up to that of a sub-block; its best scale is then found exactly, and its error at any scale is a
//! lookup. An envelope is exact within the range of scales that it was asked for; beyond, the choices at the ends of the
//! range go on.

use wide::f32x8;

use super::scale::{Curve, Moments};

/// One choice of codes, whose cost at scale `s` is `s · (s·b − 2·a)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// Σ w·x·e.
    pub(super) a: f32,
    /// Σ w·e².
    pub(super) b: f32,
    /// The caller's name for the choice.
    pub(super) choice: u32,
}

impl Line {
    #[inline(always)]
    fn at(self, s: f32) -> f32 {
        s * self.b - 2.0 * self.a
    }

    /// Where `self`, the steeper, meets `other`.
    #[inline(always)]
    fn meets(self, other: Line) -> f32 {
        (2.0 * (self.a - other.a) / (self.b - other.b)).max(0.0)
    }
}

/// A stretch of scales on which one choice is the best: from `from` to the next piece's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    from: f32,
    line: Line,
}

/// The best choice at every scale from 0 up: pieces by ascending `from`, the first from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope {
    pieces: Vec<Piece>,
}

impl Envelope {
    /// The envelope of the lines `a[i], b[i]`, named by position, exact for scales within `range`.
    pub(super) fn of(a: &[f32x8], b: &[f32x8], range: (f32, f32), inner: &mut Vec<Line>) -> Self {
        let Some((first, last)) = ends(a, b, range) else { return Envelope::default() };
        if first.b <= last.b {
            return Envelope { pieces: vec![Piece { from: 0.0, line: first }] };
        }
        let s = first.meets(last);
        let (scale, bar) = (f32x8::splat(s), f32x8::splat(below(first.at(s))));
        inner.clear();
        for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
            let mut under = (scale * b - (a + a)).simd_lt(bar).to_bitmask();
            if under != 0 {
                let (a, b) = (a.to_array(), b.to_array());
                while under != 0 {
                    let l = under.trailing_zeros() as usize;
                    inner.push(Line { a: a[l & 7], b: b[l & 7], choice: (8 * i + l) as u32 });
                    under &= under - 1;
                }
            }
        }
        hull(first, last, inner)
    }

    /// The envelope of all pieces of `parts`, with their choices.
    pub(super) fn union(parts: [&Envelope; 2], inner: &mut Vec<Line>) -> Self {
        let lines = || parts.iter().flat_map(|part| &part.pieces).map(|piece| piece.line);
        let first = lines().reduce(|x, y| if (y.a, x.b) > (x.a, y.b) { y } else { x });
        let last = lines().reduce(|x, y| if (y.b, x.a) < (x.b, y.a) { y } else { x });
        let (Some(first), Some(last)) = (first, last) else { return Envelope::default() };
        if first.b <= last.b {
            return Envelope { pieces: vec![Piece { from: 0.0, line: first }] };
        }
        let s = first.meets(last);
        let bar = below(first.at(s));
        inner.clear();
        inner.extend(lines().filter(|line| line.at(s) < bar));
        hull(first, last, inner)
    }

    /// The envelope of the sums of one piece of each: independent choices under one scale. Choices lose their names.
    pub(super) fn sum(&self, other: &Envelope) -> Self {
        let mut pieces = Vec::with_capacity(self.pieces.len() + other.pieces.len());
        let end = |of: &Envelope, i: usize| of.pieces.get(i + 1).map_or(f32::INFINITY, |next| next.from);
        let (mut i, mut j) = (0, 0);
        while let (Some(p), Some(q)) = (self.pieces.get(i), other.pieces.get(j)) {
            let line = Line { a: p.line.a + q.line.a, b: p.line.b + q.line.b, choice: 0 };
            pieces.push(Piece { from: p.from.max(q.from), line });
            let (p_end, q_end) = (end(self, i), end(other, j));
            i += usize::from(p_end <= q_end);
            j += usize::from(q_end <= p_end);
        }
        Envelope { pieces }
    }

    /// The same envelope with all choices named `choice`.
    pub(super) fn named(mut self, choice: u32) -> Self {
        self.pieces.iter_mut().for_each(|piece| piece.line.choice = choice);
        self
    }

    /// The best choice at scale `s`.
    pub(super) fn choice(&self, s: f32) -> u32 {
        self.piece(s).map_or(0, |piece| piece.line.choice)
    }

    /// The scale of least cost; 0 where nothing is better than zeros.
    pub(super) fn best_scale(&self) -> f32 {
        let (mut best, mut best_cost) = (0.0, 0.0);
        for (i, &Piece { from, line }) in self.pieces.iter().enumerate() {
            let to = self.pieces.get(i + 1).map_or(f32::INFINITY, |next| next.from);
            if line.b > 0.0 {
                let s = (line.a / line.b).max(from).min(to);
                let cost = s * line.at(s);
                if cost < best_cost {
                    (best, best_cost) = (s, cost);
                }
            }
        }
        best
    }

    fn piece(&self, s: f32) -> Option<&Piece> {
        let started = self.pieces.partition_point(|piece| piece.from <= s);
        self.pieces.get(started.saturating_sub(1))
    }
}

impl Curve for Envelope {
    fn at(&self, s: f32) -> Moments {
        self.piece(s).map_or(Moments::default(), |&Piece { line, .. }| Moments {
            a: line.a,
            b: line.b,
            err: s * line.at(s),
        })
    }
}

/// A little less than `cost`: lines that only touch the envelope stay out.
fn below(cost: f32) -> f32 {
    cost - 1e-6 * cost.abs()
}

/// The line that is lowest at either end of `range`; of equals the first.
fn ends(a: &[f32x8], b: &[f32x8], range: (f32, f32)) -> Option<(Line, Line)> {
    let numbers = f32x8::new(std::array::from_fn(|l| l as f32));
    let scales = [range.0, range.1].map(f32x8::splat);
    let mut lowest = [[f32x8::splat(f32::INFINITY), numbers]; 2];
    for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
        let number = numbers + f32x8::splat(8.0 * i as f32);
        for (scale, [cost, at]) in scales.iter().zip(&mut lowest) {
            let here = *scale * b - (a + a);
            let lower = here.simd_lt(*cost);
            (*cost, *at) = (here.fast_min(*cost), lower.bitselect(number, *at));
        }
    }
    let line = |[cost, at]: [f32x8; 2]| {
        let (cost, at) = (cost.to_array(), at.to_array());
        let best = (1..8).fold(0, |x, y| if (cost[y], at[y]) < (cost[x], at[x]) { y } else { x });
        let choice = at[best] as usize;
        let (a, b) = (a.get(choice / 8)?.to_array(), b.get(choice / 8)?.to_array());
        Some(Line { a: a[choice % 8], b: b[choice % 8], choice: choice as u32 })
    };
    line(lowest[0]).zip(line(lowest[1]))
}

/// The envelope that starts with `first` and ends with `last`, given the lines that are below both where they meet.
///
/// The lowest of those is on the envelope and splits the rest in two: the steeper, of which those matter that are below
/// where it meets the left neighbour, and the flatter, likewise to the right. No line matters on both sides.
fn hull(first: Line, last: Line, inner: &mut [Line]) -> Envelope {
    let mut pieces = Vec::with_capacity(12);
    pieces.push(Piece { from: 0.0, line: first });
    // Gaps still to fill, the leftmost on top, with the range of `inner` that may fill it.
    let mut gaps = vec![(first, last, 0, inner.len())];
    while let Some((left, right, start, end)) = gaps.pop() {
        let s = left.meets(right);
        let (mut lowest, mut cost) = (left, f32::INFINITY);
        for &line in &inner[start..end] {
            let here = line.at(s);
            if here < cost {
                (lowest, cost) = (line, here);
            }
        }
        if start == end || lowest.b >= left.b || lowest.b <= right.b {
            pieces.push(Piece { from: s, line: right });
            continue;
        }
        let (to_left, to_right) = (left.meets(lowest), lowest.meets(right));
        let (left_bar, right_bar) = (below(left.at(to_left)), below(right.at(to_right)));
        // Sorted in place: lines for the left gap, then those for the right, then the rest.
        let (mut middle, mut at, mut stop) = (start, start, end);
        while at < stop {
            let line = inner[at];
            if line.b > lowest.b && line.at(to_left) < left_bar {
                inner.swap(middle, at);
                middle += 1;
                at += 1;
            } else if line.b < lowest.b && line.at(to_right) < right_bar {
                at += 1;
            } else {
                stop -= 1;
                inner.swap(at, stop);
            }
        }
        gaps.push((lowest, right, middle, stop));
        gaps.push((left, lowest, start, middle));
    }
    Envelope { pieces }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> impl FnMut() -> f32 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        }
    }

    fn lines(seed: u64, n: usize) -> (Vec<f32x8>, Vec<f32x8>) {
        let mut r = random(seed);
        (0..n / 8)
            .map(|_| {
                // Few slopes, as a codebook without weights has them, so that there are many ties.
                let b: [f32; 8] = std::array::from_fn(|_| 1.0 + (r() * 20.0).floor());
                let a = b.map(|b| r() * b.sqrt());
                (f32x8::new(a), f32x8::new(b))
            })
            .unzip()
    }

    fn lowest(a: &[f32x8], b: &[f32x8], s: f32) -> f32 {
        let at = |(&a, &b): (&f32x8, &f32x8)| (f32x8::splat(s) * b - a - a).to_array();
        a.iter().zip(b).flat_map(at).fold(f32::INFINITY, f32::min)
    }

    fn close(x: f32, y: f32) -> bool {
        (x - y).abs() <= 1e-4 * x.abs().max(y.abs()).max(1.0)
    }

    #[test]
    fn is_the_minimum_at_every_scale() {
        for seed in 0..200 {
            let (a, b) = lines(seed, 256);
            let envelope = Envelope::of(&a, &b, (0.0, 4.0), &mut Vec::new());
            assert!(envelope.pieces.is_sorted_by(|p, q| p.from <= q.from));
            for i in 0..400 {
                let s = 0.01 * i as f32;
                let Some(piece) = envelope.piece(s) else { panic!("no piece") };
                let expected = lowest(&a, &b, s);
                assert!(
                    close(piece.line.at(s), expected),
                    "seed {seed}, s {s}: {piece:?} against {expected}"
                );
                let choice = piece.line.choice as usize;
                assert_eq!(piece.line.a, a[choice / 8].to_array()[choice % 8]);
            }
        }
    }

    #[test]
    fn sums_and_unions_are_those_of_the_minima() {
        for seed in 0..50 {
            let ((a, b), (c, d)) = (lines(2 * seed, 64), lines(2 * seed + 1, 64));
            let (x, y) = (
                Envelope::of(&a, &b, (0.0, 4.0), &mut Vec::new()),
                Envelope::of(&c, &d, (0.0, 4.0), &mut Vec::new()),
            );
            let (sum, union) = (x.sum(&y), Envelope::union([&x, &y], &mut Vec::new()));
            for i in 0..200 {
                let s = 0.02 * i as f32;
                let (p, q) = (lowest(&a, &b, s), lowest(&c, &d, s));
                assert!(close(sum.at(s).err, s * (p + q)), "seed {seed}, s {s}");
                assert!(close(union.at(s).err, s * p.min(q)), "seed {seed}, s {s}");
            }
            let best = sum.at(sum.best_scale()).err;
            assert!(
                (0..2000).all(|i| sum.at(0.002 * i as f32).err >= best - 1e-4 * best.abs()),
                "seed {seed}"
            );
        }
    }
}
