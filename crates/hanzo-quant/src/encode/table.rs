//! Codes that come from a sorted table of 16 integers (IQ4_NL, IQ4_XS).

use wide::f32x8;

use super::scale::{Codes, step_above};
use crate::{Codes as Stored, QuantType};

/// A table of codes and the midpoints between neighbours.
#[derive(Clone, Copy)]
pub(super) struct Table {
    codes: [f32; 16],
    middles: [f32; 15],
}

impl Table {
    /// The table of a format that has one, ascending.
    pub(super) fn of(ty: QuantType) -> Option<Self> {
        let Stored::Table { table, .. } = ty.format().int?.codes else { return None };
        let codes = table.map(f32::from);
        debug_assert!(codes.is_sorted());
        Some(Table { codes, middles: std::array::from_fn(|i| 0.5 * (codes[i] + codes[i + 1])) })
    }

    /// Position of the code nearest to `v`.
    #[inline(always)]
    pub(super) fn index(self, v: f32) -> u8 {
        self.middles.iter().fold(0, |n, &middle| n + u8::from(v > middle))
    }
}

impl Codes for Table {
    /// The first code plus every step whose midpoint `v` has passed: no branch and no lookup, so it runs in lanes.
    #[inline(always)]
    fn nearest(self, v: f32x8) -> f32x8 {
        let mut code = f32x8::splat(self.codes[0]);
        for i in 0..15 {
            code += step_above(v, self.middles[i], self.codes[i + 1] - self.codes[i]);
        }
        code
    }
    fn ends(self) -> (f32, f32) {
        (self.codes[0], self.codes[15])
    }
}
