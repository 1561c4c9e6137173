//! Statistics against scipy's on random data (`stats/generate.py` made the expectations), and properties that hold for all data.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use hanzo_bench::statistics::{Ratio, Summary, Verdict, line, percentile, quantile, upper_tail};
use proptest::prelude::*;
use serde_json::Value;

fn expectations() -> Value {
    serde_json::from_str(include_str!("stats/scipy.json")).unwrap()
}

fn each(all: &Value, what: &str, check: impl Fn(&dyn Fn(&str) -> f64, &Value)) {
    let cases = all[what].as_array().unwrap();
    assert!(cases.len() >= 10, "{what}: too few cases to mean anything");
    for case in cases {
        check(&|name| case[name].as_f64().unwrap(), case);
    }
}

fn values(case: &Value, name: &str) -> Vec<f64> {
    case[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[track_caller]
fn close(ours: f64, scipys: f64, tolerance: f64) {
    assert!((ours - scipys).abs() <= tolerance * scipys.abs().max(1e-12), "{ours} is not {scipys}");
}

#[test]
fn students_t_is_scipys() {
    let all = expectations();
    each(&all, "quantiles", |case, _| {
        let t = quantile(case("p"), case("df")).unwrap();
        close(t, case("t"), 1e-9);
        close(quantile(1.0 - case("p"), case("df")).unwrap(), -t, 1e-9);
    });
    each(&all, "tails", |case, _| close(upper_tail(case("t"), case("df")), case("tail"), 1e-10));
}

#[test]
fn means_intervals_and_percentiles_are_scipys() {
    each(&expectations(), "means", |case, raw| {
        let x = values(raw, "x");
        let s = Summary::of(&x).unwrap();
        close(s.mean, case("mean"), 1e-12);
        close(s.sd.unwrap(), case("sd"), 1e-10);
        close(s.half_width().unwrap(), case("half_width"), 1e-9);
        close(s.cv().unwrap(), case("cv"), 1e-10);
        close(percentile(&x, 0.95).unwrap(), case("p95"), 1e-12);
    });
}

#[test]
fn ratios_and_lines_are_scipys() {
    let all = expectations();
    each(&all, "ratios", |case, raw| {
        let of = |name| Summary::of(&values(raw, name)).unwrap();
        let ratio = Ratio::of(&of("a"), &of("b")).unwrap();
        close(ratio.value, case("ratio"), 1e-12);
        let (low, high) = ratio.interval.unwrap();
        close(low, case("low"), 1e-9);
        close(high, case("high"), 1e-9);
    });
    each(&all, "lines", |case, raw| {
        let points: Vec<(f64, f64)> = values(raw, "x").into_iter().zip(values(raw, "y")).collect();
        let (intercept, slope) = line(&points).unwrap();
        close(intercept, case("intercept"), 1e-7);
        close(slope, case("slope"), 1e-7);
    });
}

/// Seeded noise with a known mean: intervals must hold it about as often as they claim.
#[test]
fn intervals_hold_the_truth_as_often_as_they_claim() {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let (rounds, mut held, mut ratio_held) = (4000, 0, 0);
    for _ in 0..rounds {
        let a: Vec<f64> = (0..7).map(|_| 100.0 + 3.0 * normal()).collect();
        let b: Vec<f64> = (0..7).map(|_| 40.0 + normal()).collect();
        let (a, b) = (Summary::of(&a).unwrap(), Summary::of(&b).unwrap());
        held += usize::from((a.mean - 100.0).abs() <= a.half_width().unwrap());
        let (low, high) = Ratio::of(&a, &b).unwrap().interval.unwrap();
        ratio_held += usize::from(low <= 2.5 && 2.5 <= high);
    }
    for held in [held, ratio_held] {
        let share = held as f64 / rounds as f64;
        // Four standard deviations of a share of 0.95 in 4000 are 0.014.
        assert!((share - 0.95).abs() < 0.014, "{share}");
    }
}

#[test]
fn what_cannot_be_said_is_not_said() {
    assert_eq!(Summary::of(&[]), None);
    let one = Summary::of(&[3.0]).unwrap();
    assert_eq!((one.half_width(), one.cv(), one.is_noisy()), (None, None, false));
    let ratio = Ratio::of(&one, &one).unwrap();
    assert_eq!((ratio.value, ratio.interval, ratio.verdict()), (1.0, None, None));
    assert_eq!(Ratio::of(&one, &Summary::of(&[0.0]).unwrap()), None);
    assert_eq!(percentile(&[], 0.5), None);
    assert_eq!(line(&[(1.0, 2.0), (1.0, 3.0)]), None);
    for (p, df) in [(0.0, 3.0), (1.0, 3.0), (0.5, 0.0), (f64::NAN, 3.0), (0.9, f64::INFINITY)] {
        assert_eq!(quantile(p, df), None);
    }
}

proptest! {
    #[test]
    fn scaling_scales(x in prop::collection::vec(1.0..1e3f64, 2..10), k in 0.01..100.0f64) {
        let scaled: Vec<f64> = x.iter().map(|v| v * k).collect();
        let (a, b) = (Summary::of(&x).unwrap(), Summary::of(&scaled).unwrap());
        prop_assert!((a.mean * k - b.mean).abs() <= 1e-9 * b.mean);
        prop_assert!((a.half_width().unwrap() * k - b.half_width().unwrap()).abs() <= 1e-6 * b.mean);
        let same = Ratio::of(&b, &b).unwrap();
        prop_assert_eq!(same.verdict(), Some(if same.interval.unwrap().0 > 1.0 { Verdict::Win } else { Verdict::Parity }));
    }

    #[test]
    fn order_does_not_matter(mut x in prop::collection::vec(1.0..1e3f64, 2..10)) {
        let a = Summary::of(&x).unwrap();
        let p = percentile(&x, 0.3).unwrap();
        x.reverse();
        let b = Summary::of(&x).unwrap();
        prop_assert!((a.mean - b.mean).abs() <= 1e-12 * a.mean);
        prop_assert_eq!(p, percentile(&x, 0.3).unwrap());
    }

    #[test]
    fn a_win_turned_round_is_a_loss_or_no_longer_certain(
        a in prop::collection::vec(50.0..60.0f64, 3..8),
        b in prop::collection::vec(10.0..60.0f64, 3..8),
    ) {
        let (a, b) = (Summary::of(&a).unwrap(), Summary::of(&b).unwrap());
        let (there, back) = (Ratio::of(&a, &b).unwrap(), Ratio::of(&b, &a).unwrap());
        prop_assert!((there.value * back.value - 1.0).abs() < 1e-12);
        // Both can never say that their own side is faster.
        prop_assert!(!(there.verdict() == Some(Verdict::Win) && back.verdict() == Some(Verdict::Win)));
        let (low, high) = there.interval.unwrap();
        prop_assert!(low <= there.value && there.value <= high);
    }

    #[test]
    fn quantiles_undo_tails(t in 0.01..6.0f64, df in 0.8..500.0f64) {
        let tail = upper_tail(t, df);
        let back = quantile(1.0 - tail, df).unwrap();
        // 1 - tail loses what the tail had below 1e-16.
        prop_assert!((back - t).abs() <= 1e-9 * t + 1e-15 / tail * t, "{t} {back}");
    }

    #[test]
    fn samples_of_any_bytes_are_refused_or_read(text in ".{0,200}") {
        let _ = hanzo_bench::samples::parse(&text);
    }
}
