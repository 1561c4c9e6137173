//! The precision ladder of attention: what P·V loses when P is rounded before it, as units that multiply 16-bit values want it.
//!
//! One query row, flash style: blocks of keys in order, a running maximum, un-normalized P = e^(s − max), sums in f32. Only P's rounding differs.
//! The reference is eager: all scores, then all of softmax, then P·V, in f32. Rows are ordinary, long, and made to hurt.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "common/doc.rs"]
mod doc;

use std::fmt::Write as _;

use hanzo_quant::math::exp;
use hanzo_quant::{bf16, f16};

const HEAD_DIM: usize = 32;
const BLOCK: usize = 16;

/// What P is multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum P {
    Bf16,
    F16,
    /// Two halves: P rounded, and what that left, rounded.
    Split,
    F32,
}

impl P {
    /// The parts whose products are summed.
    fn parts(self, p: f32) -> [f32; 2] {
        match self {
            P::Bf16 => [bf16::from_f32(p).to_f32(), 0.0],
            P::F16 => [f16::from_f32(p).to_f32(), 0.0],
            P::Split => {
                let high = f16::from_f32(p).to_f32();
                [high, f16::from_f32(p - high).to_f32()]
            }
            P::F32 => [p, 0.0],
        }
    }
}

/// Scores and values of one head's keys; values are halves, as the cache holds them.
struct Row {
    name: &'static str,
    scores: Vec<f32>,
    values: Vec<[f32; HEAD_DIM]>,
}

fn flash(row: &Row, kind: P) -> [f32; HEAD_DIM] {
    let (mut most, mut sum, mut out) = (f32::NEG_INFINITY, 0f32, [0f32; HEAD_DIM]);
    for (scores, values) in row.scores.chunks(BLOCK).zip(row.values.chunks(BLOCK)) {
        let next = scores.iter().copied().fold(most, f32::max);
        let scale = if most == f32::NEG_INFINITY { 0.0 } else { exp(most - next) };
        (most, sum) = (next, sum * scale);
        out.iter_mut().for_each(|o| *o *= scale);
        for (s, v) in scores.iter().zip(values) {
            let p = exp(s - most);
            sum += p;
            let [high, low] = kind.parts(p);
            for (o, v) in out.iter_mut().zip(v) {
                *o = low.mul_add(*v, high.mul_add(*v, *o));
            }
        }
    }
    out.map(|o| o / sum)
}

fn eager(row: &Row) -> [f32; HEAD_DIM] {
    let most = row.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let p: Vec<f32> = row.scores.iter().map(|s| exp(s - most)).collect();
    let sum: f32 = p.iter().sum();
    let mut out = [0f32; HEAD_DIM];
    for (p, v) in p.iter().zip(&row.values) {
        let p = p / sum;
        out.iter_mut().zip(v).for_each(|(o, v)| *o = p.mul_add(*v, *o));
    }
    out
}

/// In f64, to see what the reference itself is worth.
fn exact(row: &Row) -> [f64; HEAD_DIM] {
    let most = f64::from(row.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let p: Vec<f64> = row.scores.iter().map(|s| (f64::from(*s) - most).exp()).collect();
    let sum: f64 = p.iter().sum();
    let mut out = [0f64; HEAD_DIM];
    for (p, v) in p.iter().zip(&row.values) {
        out.iter_mut().zip(v).for_each(|(o, v)| *o += p / sum * f64::from(*v));
    }
    out
}

/// The greatest difference, in parts of the greatest result.
fn error(got: &[f32; HEAD_DIM], want: &[f64; HEAD_DIM]) -> f64 {
    let size = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let off = got.iter().zip(want).fold(0f64, |m, (g, w)| m.max((f64::from(*g) - w).abs()));
    off / size
}

fn rows() -> Vec<Row> {
    // A generator of our own, so that the table is the same everywhere.
    let mut state = 9u64;
    let mut unit = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let half = |v: f32| f16::from_f32(v).to_f32();
    let mut row =
        |name, n: usize, score: &dyn Fn(usize, f32) -> f32, value: &dyn Fn(usize, f32) -> f32| Row {
            name,
            scores: (0..n).map(|i| score(i, unit())).collect(),
            values: (0..n).map(|i| std::array::from_fn(|_| half(value(i, unit())))).collect(),
        };
    let any = |_: usize, u: f32| u;
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    vec![
        row("128 keys, ordinary", 128, &|_, u| 4.0 * u, &any),
        row("4096 keys, ordinary", 4096, &|_, u| 4.0 * u, &any),
        row("32768 keys, ordinary", 32768, &|_, u| 4.0 * u, &any),
        // Neighbours all but cancel: what is left is the difference of their weights.
        row("32768 keys, values cancel", 32768, &|i, u| 0.01 * u + 1e-3 * sign(i), &|i, u| {
            sign(i) * (1.0 + 1e-3 * u)
        }),
        // A sink takes all of the weight and brings nothing: the rest is e^−18 each.
        row("32768 keys, a sink of score 18", 32768, &|i, u| if i == 0 { 18.0 } else { 0.5 * u }, &|i, u| {
            if i == 0 { 0.0 } else { 1.0 + u }
        }),
        // Scores climb: the running maximum moves in every block.
        row("8192 keys, scores climb", 8192, &|i, u| i as f32 / 256.0 + u, &any),
    ]
}

#[test]
fn f32_is_what_p_times_v_needs() {
    const KINDS: [P; 4] = [P::Bf16, P::F16, P::Split, P::F32];
    let mut text =
        "| row | bf16 | f16 | f16, split in two | f32 | eager f32 against f64 |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let mut worst = [0f64; 4];
    for row in rows() {
        let reference = eager(&row);
        let wide = reference.map(f64::from);
        let errors = KINDS.map(|kind| error(&flash(&row, kind), &wide));
        let own = error(&reference, &exact(&row));
        let cells: Vec<_> = errors.iter().map(|e| format!("{e:.0e}")).collect();
        let _ = writeln!(text, "| {} | {} | {own:.0e} |", row.name, cells.join(" | "));
        worst.iter_mut().zip(errors).for_each(|(w, e)| *w = w.max(e));
        // f32 differs from the reference by the order of sums only: by no more than the reference is off itself, give or take.
        assert!(errors[3] <= 8.0 * own + 1e-6, "{}: {:e} against {own:e}", row.name, errors[3]);
    }
    println!("{text}");
    let [bf16, f16, split, f32] = worst;
    assert!(bf16 > 1e-2, "bf16 is bad enough somewhere: {bf16:e}");
    assert!(f16 > 1e-2 && split > 1e-2, "so are halves, one or two: {f16:e} {split:e}");
    assert!(f32 < 1e-3 && [bf16, f16, split].iter().all(|e| *e > 20.0 * f32), "f32 stays: {f32:e}");
    doc::check("precision ladder", &text);
}
