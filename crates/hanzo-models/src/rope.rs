//! Rotary tables from metadata: base frequency, linear and YaRN scaling, and per-frequency factors (llama 3).
//!
//! Sources: RoFormer (Su et al. 2021) for the angles; position interpolation (Chen et al. 2023) for `linear`;
//! YaRN (Peng et al. 2023) for `yarn`, whose ramp between interpolated and original frequencies runs over the
//! dimensions that turn between `beta_slow` and `beta_fast` times within the original context.

use hanzo_fusion::graph::{RopeSpec, RopeStyle};
use hanzo_quant::math::{ln_f64, pow};

use crate::hyper::Hyper;
use crate::{ModelError, Result};

/// The table of `n_rot` rotated elements a head with base frequency `base`, as `rope.scaling.*` says.
///
/// `factors` divide the frequencies one by one.
///
/// # Errors
/// [`ModelError`] for an unknown scaling type or a parameter out of bounds.
pub(crate) fn scaled(
    h: &Hyper<'_>,
    style: RopeStyle,
    n_rot: usize,
    base: f32,
    factors: Option<&[f32]>,
) -> Result<RopeSpec> {
    let mut spec = plain(style, n_rot, base);
    let kind = h.opt_str("rope.scaling.type")?.unwrap_or("none");
    let factor = f64::from(h.opt_float("rope.scaling.factor", 1e-3..=1e6)?.unwrap_or(1.0));
    match kind {
        "none" | "llama3" | "longrope" => {}
        "linear" => spec.inv_freq.iter_mut().for_each(|f| *f /= factor),
        "yarn" => yarn(h, &mut spec, n_rot, base, factor)?,
        other => return Err(h.fault("rope.scaling.type", other, "none, linear or yarn")),
    }
    if let Some(factors) = factors {
        for (f, &by) in spec.inv_freq.iter_mut().zip(factors) {
            if !(by.is_finite() && by > 0.0) {
                return Err(ModelError::Hyper {
                    key: "rope_freqs.weight".to_owned(),
                    found: by.to_string(),
                    expected: "positive numbers".to_owned(),
                });
            }
            *f /= f64::from(by);
        }
    }
    Ok(spec)
}

/// The unscaled table: `inv_freq[i] = base^(-2i / n_rot)`.
pub(crate) fn plain(style: RopeStyle, n_rot: usize, base: f32) -> RopeSpec {
    let base = f64::from(base);
    let inv_freq = (0..n_rot / 2).map(|i| pow(base, -((2 * i) as f64) / n_rot as f64)).collect();
    RopeSpec { style, inv_freq, magnitude: 1.0 }
}

/// Rotated elements a head: `rope.dimension_count`, or the whole head.
pub(crate) fn n_rot(h: &Hyper<'_>, head_dim: usize) -> Result<usize> {
    let n = h.opt_count("rope.dimension_count", 0..=u32::MAX)?.unwrap_or(head_dim);
    if n == 0 || n > head_dim || !n.is_multiple_of(2) {
        return Err(h.fault(
            "rope.dimension_count",
            n,
            format!("an even number from 2 to the head's {head_dim}"),
        ));
    }
    Ok(n)
}

/// The base frequency.
pub(crate) fn base(h: &Hyper<'_>, name: &str, default: f32) -> Result<f32> {
    Ok(h.opt_float(name, 1.0..=1e12)?.unwrap_or(default))
}

fn yarn(h: &Hyper<'_>, spec: &mut RopeSpec, n_rot: usize, base: f32, factor: f64) -> Result<()> {
    let original = h.count("rope.scaling.original_context_length", 1..=crate::hyper::MAX_CONTEXT)? as f64;
    let beta_fast = f64::from(h.opt_float("rope.scaling.yarn_beta_fast", 1e-3..=1e6)?.unwrap_or(32.0));
    let beta_slow = f64::from(h.opt_float("rope.scaling.yarn_beta_slow", 1e-3..=1e6)?.unwrap_or(1.0));
    let attn_factor = h.opt_float("rope.scaling.attn_factor", 1e-3..=1e3)?.unwrap_or(1.0);
    // The (fractional) pair that turns `beta` times over the original context.
    let pair = |beta: f64| {
        let turns = original / (beta * std::f64::consts::TAU);
        n_rot as f64 * ln_f64(turns) / (2.0 * ln_f64(f64::from(base)))
    };
    let low = pair(beta_fast).floor().max(0.0);
    let high = pair(beta_slow).ceil().min(n_rot as f64 - 1.0);
    for (i, f) in spec.inv_freq.iter_mut().enumerate() {
        let ramp = ((i as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0);
        *f = (*f / factor) * ramp + *f * (1.0 - ramp);
    }
    if factor > 1.0 {
        spec.magnitude = (1.0 + 0.1 * ln_f64(factor)) as f32;
    }
    spec.magnitude *= attn_factor;
    Ok(())
}
