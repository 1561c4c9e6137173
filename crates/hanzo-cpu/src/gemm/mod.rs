//! The core for many rows: a panel of weights is unpacked once for a block of rows, then multiplied in register tiles.
#![allow(unsafe_code)]

use crate::contract::{Finish, Rows};
use crate::isa::Isa;
use crate::packed::PackedMatrix;
use crate::pool::Ctx;

/// Whether `m` rows are worth a panel.
pub(crate) fn pays(isa: Isa, m: usize) -> bool {
    let _ = (isa, m);
    false
}

/// Contracts rows `0..m` of `x` with all strips of `w`.
pub(crate) fn run<const P: usize>(
    ctx: &Ctx<'_>,
    w: [&PackedMatrix; P],
    x: Rows<'_>,
    m: usize,
    out: &dyn Finish<P>,
) {
    let _ = (ctx, w, x, m, out);
}
