//! Sums over what enters a model's contractions.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use hanzo_fusion::graph::WeightDecl;
use hanzo_fusion::{ContractionInput, Observer};

/// What entered a tensor's matrices (one, or one an expert).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) columns: usize,
    /// Σ x² of each column, `[matrices, columns]`.
    pub(super) squares: Vec<f64>,
    /// Σ x.
    pub(super) values: Vec<f64>,
    /// Rows that each matrix met.
    pub(super) counts: Vec<u64>,
}

impl Sums {
    fn new(decl: &WeightDecl) -> Self {
        let n = decl.n_stack * decl.n_in;
        Self {
            columns: decl.n_in,
            squares: vec![0.0; n],
            values: vec![0.0; n],
            counts: vec![0; decl.n_stack],
        }
    }

    /// Adds a row that matrix `matrix` met.
    fn add(&mut self, matrix: usize, row: &[f32]) {
        let from = matrix.saturating_mul(self.columns);
        let range = from..from.saturating_add(self.columns);
        let (Some(squares), Some(values), Some(count)) =
            (self.squares.get_mut(range.clone()), self.values.get_mut(range), self.counts.get_mut(matrix))
        else {
            return;
        };
        *count += 1;
        for ((square, value), &x) in squares.iter_mut().zip(values).zip(row) {
            let x = f64::from(x);
            *square += x * x;
            *value += x;
        }
    }
}

/// Collects for the matrices of layers, and of the output if wanted. Rows are added in their order, in f64: the sums depend on the
/// text only.
pub(super) struct Collector {
    with_output: bool,
    sums: Mutex<BTreeMap<String, Sums>>,
}

impl Collector {
    pub(super) fn new(with_output: bool) -> Self {
        Self { with_output, sums: Mutex::default() }
    }

    fn wants(&self, decl: &WeightDecl) -> bool {
        // Beside the layers, only the output is contracted: by a matrix of its own, or by the embedding.
        decl.name.starts_with("blk.") || self.with_output
    }

    /// The sums by tensor, in the order of names; those of matrices that met nothing at all are left out.
    ///
    /// # Errors
    /// When activations were not finite.
    pub(super) fn take(&self) -> Result<Vec<(String, Sums)>> {
        let sums = std::mem::take(&mut *self.sums.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((name, _)) = sums.iter().find(|(_, s)| !s.squares.iter().all(|x| (*x as f32).is_finite()))
        {
            bail!("the activations that enter `{name}` are not finite; the model is damaged");
        }
        Ok(sums.into_iter().collect())
    }
}

impl Observer for Collector {
    fn contraction(&self, input: &ContractionInput<'_>) {
        let mut all = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        for decl in input.weights.iter().filter(|decl| self.wants(decl)) {
            let sums = match all.get_mut(&decl.name) {
                Some(sums) => sums,
                None => all.entry(decl.name.clone()).or_insert_with(|| Sums::new(decl)),
            };
            match input.routes {
                None => input.rows.chunks_exact(decl.n_in.max(1)).for_each(|row| sums.add(0, row)),
                Some(routes) => {
                    let rows: Vec<&[f32]> = input.rows.chunks_exact(decl.n_in.max(1)).collect();
                    for (pair, &expert) in routes.ids.iter().enumerate() {
                        if let Some(row) = rows.get(pair / routes.pairs_per_row.max(1)) {
                            sums.add(expert as usize, row);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hanzo_fusion::observe::Routes;

    use super::*;

    fn decl(name: &str, n_stack: usize) -> WeightDecl {
        WeightDecl { name: name.to_owned(), n_stack, n_out: 1, n_in: 2, ty: hanzo_quant::QuantType::F32 }
    }

    #[test]
    fn rows_are_summed_by_column() {
        let collector = Collector::new(false);
        let (q, k, head) = (decl("blk.0.q", 1), decl("blk.0.k", 1), decl("output.weight", 1));
        for rows in [[1.0, 2.0, 3.0, 4.0], [0.0, -1.0, 2.0, 0.5]] {
            let weights = [&q, &k, &head];
            collector.contraction(&ContractionInput { weights: &weights, rows: &rows, routes: None });
        }
        let sums = collector.take().unwrap();
        assert_eq!(sums.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["blk.0.k", "blk.0.q"]);
        for (_, sums) in sums {
            assert_eq!(sums.squares, [14.0, 21.25]);
            assert_eq!(sums.values, [6.0, 5.5]);
            assert_eq!(sums.counts, [4]);
        }
    }

    #[test]
    fn experts_have_sums_of_their_own() {
        let (up, down) = (decl("blk.0.up", 3), decl("blk.0.down", 3));
        let ids = [2, 0, 0, 2];
        let collector = Collector::new(true);
        // Two tokens, two experts each: up reads a token's row for both.
        let routes = |pairs_per_row| Some(Routes { ids: &ids, pairs_per_row });
        let rows = [1.0, 2.0, 3.0, 4.0];
        collector.contraction(&ContractionInput { weights: &[&up], rows: &rows, routes: routes(2) });
        let rows = [1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0];
        collector.contraction(&ContractionInput { weights: &[&down], rows: &rows, routes: routes(1) });
        let sums: BTreeMap<_, _> = collector.take().unwrap().into_iter().collect();
        assert_eq!(sums["blk.0.up"].squares, [10.0, 20.0, 0.0, 0.0, 10.0, 20.0]);
        assert_eq!(sums["blk.0.down"].squares, [13.0, 0.0, 0.0, 0.0, 17.0, 0.0]);
        assert_eq!(sums["blk.0.down"].counts, [2, 0, 2]);
    }

    #[test]
    fn activations_that_are_not_finite_are_an_error() {
        let collector = Collector::new(false);
        let q = decl("blk.3.q", 1);
        collector.contraction(&ContractionInput { weights: &[&q], rows: &[f32::NAN, 1.0], routes: None });
        assert!(collector.take().unwrap_err().to_string().contains("blk.3.q"));
    }
}
