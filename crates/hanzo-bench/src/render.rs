//! The board as Markdown, JSON, charts and LaTeX. All of it is a pure function of the [`Board`](crate::board::Board).

pub mod chart;
pub mod markdown;
pub mod tex;

use crate::board::Measured;
use crate::samples::{Phase, Shape};

/// What stands where nothing was measured.
pub const PENDING: &str = "run pending";

/// A number with three significant digits, or as many as its integer part has.
pub(crate) fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// `of` with as many decimals as [`number`] gives `like`.
pub(crate) fn as_precise(of: f64, like: f64) -> String {
    let decimals = match like.abs() {
        a if a >= 100.0 => usize::from(of < 0.95),
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{of:.decimals$}")
}

/// Mean and half-width.
pub(crate) fn with_interval(m: &Measured, plus_minus: &str) -> String {
    match m.half_width {
        Some(half) => format!("{}{plus_minus}{}", number(m.mean), as_precise(half, m.mean)),
        None => number(m.mean),
    }
}

/// What the board calls a shape.
pub(crate) fn label(shape: &Shape) -> String {
    let mut text = match shape.phase {
        Phase::Prefill => format!("prefill {}", shape.n),
        Phase::Request => format!("first token, prompt of {}", shape.n),
        Phase::Decode => format!("decode {}", shape.n),
        Phase::Load => "start to first token".to_owned(),
        other => format!("{} {}", other.name(), shape.n),
    };
    if let (Phase::Load, Some(how)) = (shape.phase, &shape.workload) {
        text.push_str(&format!(", file {how}"));
    }
    if shape.batch > 1 {
        text.push_str(&format!(", batch {}", shape.batch));
    }
    if shape.depth > 0 {
        text.push_str(&format!(", depth {}", shape.depth));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let all: Vec<String> = [12345.6, 123.4, 12.34, 1.234, 0.1234].into_iter().map(number).collect();
        assert_eq!(all, ["12346", "123", "12.3", "1.23", "0.123"]);
        assert_eq!(as_precise(0.4, 123.0), "0.4");
        assert_eq!(as_precise(4.0, 123.0), "4");
    }
}
