use std::collections::HashSet;

use super::*;

/// Chi-square statistic of `counts` against probabilities; impossible outcomes must not occur.
fn chi_square(counts: &[u32], ps: &[f64]) -> f64 {
    let n = f64::from(counts.iter().sum::<u32>());
    let mut sum = 0.0;
    for (i, (&count, &p)) in counts.iter().zip(ps).enumerate() {
        if p == 0.0 {
            assert_eq!(count, 0, "token {i} is impossible");
        } else {
            sum += (f64::from(count) - n * p).powi(2) / (n * p);
        }
    }
    sum
}

/// Draws at positions 0.. with a fixed history of penalties.
fn counts(params: &SamplingParams, logits: &[f32], history: &[u32], n: usize) -> Vec<u32> {
    let mut counts = vec![0; logits.len()];
    for seed in 0..n as u64 {
        let mut sampler = Sampler::new(SamplingParams { seed, ..params.clone() });
        let id = sampler.sample(logits, history, &[], None).unwrap();
        counts[id as usize] += 1;
    }
    counts
}

#[test]
fn draws_follow_the_distribution() {
    let ps = [0.1f32, 0.4, 0.2, 0.3];
    let logits: Vec<f32> = ps.iter().map(|p| p.ln()).collect();
    let mut sampler = Sampler::new(SamplingParams::plain());
    let mut counts = [0u32; 4];
    let mut history = Vec::new();
    for _ in 0..20_000 {
        let id = sampler.sample(&logits, &history, &[], None).unwrap();
        counts[id as usize] += 1;
        history.push(id);
    }
    let chi2 = chi_square(&counts, &ps.map(f64::from));
    assert!(chi2 < 16.27, "chi-square {chi2} at 3 degrees of freedom (p = 0.001), {counts:?}");
}

/// The whole chain in its default order against the same arithmetic in f64, written out step by step.
#[test]
fn the_whole_chain_follows_its_distribution() {
    let logits: [f32; 8] = [2.0, 1.5, 1.2, 0.4, 0.0, -0.5, -2.0, -8.0];
    let history = [7, 1, 1, 6];
    let params = SamplingParams {
        temperature: 0.7,
        top_n_sigma: 2.0,
        top_k: 6,
        top_p: 0.97,
        min_p: 0.08,
        repeat_penalty: 1.25,
        presence_penalty: 0.1,
        frequency_penalty: 0.05,
        logit_bias: vec![(4, 0.8)],
        ..SamplingParams::default()
    };
    let mut l: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    l[4] += 0.8;
    for (id, count) in [(7, 1.0), (1, 2.0), (6, 1.0)] {
        l[id] = if l[id] > 0.0 { l[id] / 1.25 } else { l[id] * 1.25 };
        l[id] -= 0.1 + 0.05 * count;
    }
    let softmax = |l: &[f64]| {
        let sum: f64 = l.iter().map(|l| l.exp()).sum();
        l.iter().map(|l| l.exp() / sum).collect::<Vec<_>>()
    };
    let drop = |l: &mut Vec<f64>, gone: &dyn Fn(usize, f64) -> bool| {
        for (i, x) in l.iter_mut().enumerate() {
            if gone(i, *x) {
                *x = f64::NEG_INFINITY;
            }
        }
    };
    let mean = l.iter().sum::<f64>() / 8.0;
    let sigma = (l.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 8.0).sqrt();
    let best = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    drop(&mut l, &|_, x| x < best - 2.0 * sigma);
    let rank = |l: &[f64]| {
        let mut ids: Vec<usize> = (0..8).collect();
        ids.sort_by(|&a, &b| l[b].total_cmp(&l[a]));
        ids
    };
    let ids = rank(&l);
    drop(&mut l, &|i, _| ids.iter().position(|&x| x == i).unwrap() >= 6);
    let (ps, ids) = (softmax(&l), rank(&l));
    let mut sum = 0.0;
    let nucleus = ids.iter().position(|&i| {
        sum += ps[i];
        sum >= 0.97
    });
    drop(&mut l, &|i, _| ids.iter().position(|&x| x == i).unwrap() > nucleus.unwrap());
    let ps = softmax(&l);
    let top = ps.iter().copied().fold(0.0, f64::max);
    drop(&mut l, &|i, _| ps[i] < 0.08 * top);
    let ps = softmax(&l.iter().map(|l| l / 0.7).collect::<Vec<_>>());
    let left = ps.iter().filter(|p| **p > 0.0).count();
    assert!((3..8).contains(&left), "the case must filter something: {ps:?}");

    let counts = counts(&params, &logits, &history, 20_000);
    let chi2 = chi_square(&counts, &ps);
    // p = 0.001 at 7 degrees of freedom, more than there are.
    assert!(chi2 < 24.32, "chi-square {chi2}, {counts:?} for {ps:?}");
}

/// With chance 1/2 the top choices but the last go: the mean of the two distributions.
#[test]
fn xtc_acts_with_its_probability() {
    let ps = [0.4f32, 0.3, 0.2, 0.1];
    let logits: Vec<f32> = ps.iter().map(|p| p.ln()).collect();
    let params = SamplingParams { xtc_probability: 0.5, xtc_threshold: 0.25, ..SamplingParams::plain() };
    let expected = [0.2, 0.5 * 0.3 + 0.5 * 0.5, 0.5 * 0.2 + 0.5 / 3.0, 0.5 * 0.1 + 0.5 / 6.0];
    let chi2 = chi_square(&counts(&params, &logits, &[], 20_000), &expected);
    assert!(chi2 < 16.27, "chi-square {chi2}");
}

#[test]
fn the_order_is_the_requests() {
    // Temperature 4 first flattens 0.4/0.3/0.2/0.1 so that min-p 0.6 keeps all; last, it comes too late.
    let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
    let params = |order: &[Stage]| SamplingParams {
        temperature: 4.0,
        min_p: 0.6,
        order: order.to_vec(),
        ..SamplingParams::plain()
    };
    let seen =
        |order: &[Stage]| counts(&params(order), &logits, &[], 2000).iter().filter(|c| **c > 0).count();
    assert_eq!(seen(&[Stage::Temperature, Stage::MinP]), 4);
    assert_eq!(seen(&[Stage::MinP, Stage::Temperature]), 2);
    assert_eq!(seen(&[]), 4);
}

#[test]
fn greedy_takes_the_lowest_of_equals_and_never_nan() {
    let mut s = Sampler::new(SamplingParams::greedy());
    assert_eq!(s.sample(&[f32::NAN, 1.0, 3.0, 3.0], &[], &[], None), Some(2));
    assert_eq!(s.sample(&[1.0, 3.0], &[], &[1], None), Some(0));
    assert_eq!(s.sample(&[f32::NAN; 3], &[], &[], None), None);
}

/// Greedy with filters that cannot drop the best is the best; with those that can, the best of what they leave.
#[test]
fn greedy_with_filters() {
    let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
    let one = |p: SamplingParams| Sampler::new(p).sample(&logits, &[], &[], None);
    assert_eq!(one(SamplingParams { top_k: 2, top_n_sigma: 0.5, ..SamplingParams::greedy() }), Some(0));
    let xtc = SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.25, ..SamplingParams::greedy() };
    assert_eq!(one(xtc), Some(1));
    assert_eq!(one(SamplingParams { typical_p: 0.25, ..SamplingParams::greedy() }), Some(1));
    let order = vec![Stage::TopK];
    assert_eq!(one(SamplingParams { typical_p: 0.25, order, ..SamplingParams::greedy() }), Some(0));
}

#[test]
fn a_mask_and_bans_leave_only_what_they_allow() {
    let logits = [3.0, 2.0, 1.0, 0.0];
    let mut mask = TokenMask::new(4);
    mask.allow(2);
    mask.allow(3);
    for params in [SamplingParams::greedy(), SamplingParams::default()] {
        let mut s = Sampler::new(params);
        assert!(s.sample(&logits, &[], &[], Some(&mask)).unwrap() >= 2);
        assert_eq!(s.sample(&logits, &[], &[2], Some(&mask)), Some(3));
        assert_eq!(s.sample(&logits, &[], &[2, 3], Some(&mask)), None);
        assert_eq!(s.sample(&logits, &[], &[], Some(&TokenMask::new(4))), None);
    }
}

#[test]
fn a_draw_depends_on_seed_position_and_branch_only() {
    let mut s = Sampler::new(SamplingParams { seed: 7, ..SamplingParams::default() });
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
    let a = s.sample(&logits, &[1, 2, 3], &[], None);
    s.sample(&logits, &[1], &[], None);
    assert_eq!(a, s.sample(&logits, &[1, 2, 3], &[], None));
    let drawn: HashSet<_> = (0..20).map(|b| s.branch(b).sample(&logits, &[1, 2, 3], &[], None)).collect();
    assert!(drawn.len() > 1, "branches draw differently");
}
