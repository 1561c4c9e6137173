//! Low-rank adapters (LoRA): updates of some weights that each request chooses for its own rows.
//!
//! An adapter leaves the weights alone. Where a row uses it, the product of weight `W` becomes `W·x + s · B·(A·x)`, in the order
//! that `hanzo_quant::canonical` writes down; rows that do not use it are not touched. Reading adapter files is left to
//! `hanzo-models`, computing with them to the devices. (Hu et al. 2021.)

use thiserror::Error;

use crate::graph::{Graph, Op, Rows, Weight};

/// Columns of `A` and `B` as they lie in memory are padded to a multiple of this many, with zeros.
pub const PAD: usize = 16;

/// An adapter that does not fit the model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the update of `{weight}`: {reason}")]
pub struct AdapterError {
    /// The weight's name in the model file.
    pub weight: String,
    /// What is wrong.
    pub reason: String,
}

/// `B · A` and its scale: the update of one weight.
///
/// Both matrices lie transposed, outputs side by side, so that a device takes 16 outputs at a time.
#[derive(Clone, PartialEq)]
pub struct LowRank {
    rank: usize,
    n_in: usize,
    n_out: usize,
    scale: f32,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl std::fmt::Debug for LowRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LowRank([{}, {}] of rank {})", self.n_out, self.n_in, self.rank)
    }
}

/// Shape of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowRankShape {
    /// Rows of `A`, columns of `B`; at least 1.
    pub rank: usize,
    /// Columns of `A`.
    pub n_in: usize,
    /// Rows of `B`.
    pub n_out: usize,
}

impl LowRank {
    /// From `a`, row-major `[rank, n_in]`, and `b`, row-major `[n_out, rank]`; `scale` multiplies their product.
    ///
    /// # Errors
    /// The reason why this is no update: sizes that do not fit, a rank of 0, numbers that are not finite.
    pub fn new(shape: LowRankShape, scale: f32, a: &[f32], b: &[f32]) -> Result<Self, String> {
        let LowRankShape { rank, n_in, n_out } = shape;
        if rank == 0 || n_in == 0 || n_out == 0 {
            return Err(format!("[{n_out}, {n_in}] of rank {rank} is no update"));
        }
        if rank.checked_mul(n_in) != Some(a.len()) || rank.checked_mul(n_out) != Some(b.len()) {
            return Err(format!(
                "{} elements of A and {} of B for [{n_out}, {n_in}] of rank {rank}",
                a.len(),
                b.len()
            ));
        }
        if !scale.is_finite() {
            return Err(format!("its scale is {scale}"));
        }
        for (which, values) in [("A", a), ("B", b)] {
            if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                return Err(format!("element {at} of {which} is not a finite number"));
            }
        }
        Ok(Self { rank, n_in, n_out, scale, a: transposed(a, n_in), b: transposed(b, rank) })
    }

    /// Its shape.
    pub fn shape(&self) -> LowRankShape {
        LowRankShape { rank: self.rank, n_in: self.n_in, n_out: self.n_out }
    }

    /// What multiplies `B · A`: alpha over rank, or what the file's method asks for.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// `A[j, k]` at `k * rank_stride() + j`.
    pub fn a(&self) -> &[f32] {
        &self.a
    }

    /// `B[n, j]` at `j * out_stride() + n`.
    pub fn b(&self) -> &[f32] {
        &self.b
    }

    /// The rank, padded.
    pub fn rank_stride(&self) -> usize {
        self.rank.next_multiple_of(PAD)
    }

    /// The number of outputs, padded.
    pub fn out_stride(&self) -> usize {
        self.n_out.next_multiple_of(PAD)
    }

    fn bytes(&self) -> u64 {
        (self.a.len() as u64).saturating_add(self.b.len() as u64).saturating_mul(4)
    }
}

/// Columns of `x`, rows of `cols`, as rows; each padded.
fn transposed(x: &[f32], cols: usize) -> Vec<f32> {
    let stride = (x.len() / cols).next_multiple_of(PAD);
    let mut out = vec![0.0; cols * stride];
    for (i, row) in x.chunks_exact(cols).enumerate() {
        for (x, column) in row.iter().zip(out.chunks_exact_mut(stride)) {
            if let Some(out) = column.get_mut(i) {
                *out = *x;
            }
        }
    }
    out
}

/// Updates of a model's weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adapter {
    embedding: Option<(Weight, LowRank)>,
    /// By index of the weight; short where the last ones have none.
    products: Vec<Option<LowRank>>,
}

/// Where a weight takes part in the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its rows are looked up by token.
    Embedding,
    /// Rows are contracted with it.
    Product,
}

impl Adapter {
    /// An adapter that updates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the update of `weight` at one of its places (a tied embedding has both).
    ///
    /// # Errors
    /// [`AdapterError`] where the weight has no such place, is a stack of experts, has another shape or an update already.
    pub fn insert(
        &mut self,
        graph: &Graph,
        weight: Weight,
        place: Place,
        update: LowRank,
    ) -> Result<(), AdapterError> {
        let Some(decl) = graph.weights.get(weight.index()) else {
            return Err(AdapterError { weight: String::new(), reason: "there is no such weight".to_owned() });
        };
        let refuse = |reason: String| Err(AdapterError { weight: decl.name.clone(), reason });
        if decl.n_stack != 1 {
            return refuse(format!(
                "it is a stack of {} experts, which adapters cannot update",
                decl.n_stack
            ));
        }
        if !has_place(graph, weight, place) {
            return refuse(match place {
                Place::Embedding => "it is not the token embedding".to_owned(),
                Place::Product => "it is not a matrix that rows are multiplied with".to_owned(),
            });
        }
        // An embedding maps a token (of `n_out` ones) to its row.
        let (n_in, n_out) = match place {
            Place::Embedding => (decl.n_out, decl.n_in),
            Place::Product => (decl.n_in, decl.n_out),
        };
        let LowRankShape { n_in: a, n_out: b, .. } = update.shape();
        if (a, b) != (n_in, n_out) {
            return refuse(format!("it maps {a} inputs to {b} outputs, the weight {n_in} to {n_out}"));
        }
        let slot = match place {
            Place::Embedding if self.embedding.is_none() => {
                self.embedding = Some((weight, update));
                return Ok(());
            }
            Place::Embedding => return refuse("there are two".to_owned()),
            Place::Product => {
                let n = self.products.len().max(weight.index() + 1);
                self.products.resize(n, None);
                self.products.get_mut(weight.index())
            }
        };
        match slot {
            Some(slot @ None) => *slot = Some(update),
            _ => return refuse("there are two".to_owned()),
        }
        Ok(())
    }

    /// The update of rows that are looked up in the embedding.
    pub fn embedding(&self) -> Option<&LowRank> {
        self.embedding.as_ref().map(|(_, update)| update)
    }

    /// The update of products with `weight`.
    pub fn product(&self, weight: Weight) -> Option<&LowRank> {
        self.products.get(weight.index())?.as_ref()
    }

    /// Whether every update has its weight in the graph, of the right shape.
    pub fn fits(&self, graph: &Graph) -> bool {
        let fits = |weight: usize, n_in: usize, n_out: usize| {
            graph.weights.get(weight).is_some_and(|w| w.n_stack == 1 && (w.n_in, w.n_out) == (n_in, n_out))
        };
        self.embedding.as_ref().is_none_or(|(w, u)| fits(w.index(), u.n_out, u.n_in))
            && self
                .products
                .iter()
                .enumerate()
                .all(|(w, u)| u.as_ref().is_none_or(|u| fits(w, u.n_in, u.n_out)))
    }

    fn updates(&self) -> impl Iterator<Item = &LowRank> {
        self.embedding().into_iter().chain(self.products.iter().flatten())
    }

    /// Number of weights that it updates.
    pub fn n_updates(&self) -> usize {
        self.updates().count()
    }

    /// The greatest rank of its updates.
    pub fn max_rank(&self) -> usize {
        self.updates().map(|u| u.rank).max().unwrap_or(0)
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.updates().map(LowRank::bytes).fold(0, u64::saturating_add)
    }
}

/// Whether `weight` takes part in the computation at `place`, in a way that adapters can update.
pub fn has_place(graph: &Graph, weight: Weight, place: Place) -> bool {
    graph.nodes.iter().any(|node| match (&node.op, place) {
        (Op::Embed { weight: w }, Place::Embedding) => *w == weight,
        // Rows of expert slots belong to no token alone.
        (Op::MatMul { weight: w, .. }, Place::Product) => {
            *w == weight && !matches!(node.shape.rows, Rows::Slots(_))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use hanzo_quant::QuantType;

    /// A tied head, a projection, and experts.
    fn graph() -> Graph {
        let mut g = Builder::new(6);
        let embd = g.matrix("embd", 6, 4, QuantType::F32);
        let w = g.matrix("w", 8, 4, QuantType::F32);
        let down = g.matrix("down", 4, 8, QuantType::F32);
        let norm = g.vector("norm", 4, QuantType::F32);
        let x = g.embed(embd);
        let y = g.matmul(x, w);
        let y = g.matmul(y, down);
        let y = g.mul_weight(y, norm);
        let y = g.select_outputs(y);
        let logits = g.matmul(y, embd);
        g.experts("experts", 3, 4, 4, QuantType::F32);
        g.finish(logits).unwrap_or_default()
    }

    fn update(n_in: usize, n_out: usize) -> LowRank {
        let (a, b) = (vec![1.0; 2 * n_in], vec![1.0; 2 * n_out]);
        LowRank::new(LowRankShape { rank: 2, n_in, n_out }, 0.5, &a, &b)
            .unwrap_or_else(|e| unreachable!("{e}"))
    }

    #[test]
    fn matrices_lie_transposed_and_padded() {
        let shape = LowRankShape { rank: 2, n_in: 3, n_out: 17 };
        let a: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..34).map(|i| i as f32).collect();
        let u = LowRank::new(shape, 1.0, &a, &b).unwrap_or_else(|e| unreachable!("{e}"));
        assert_eq!((u.rank_stride(), u.out_stride()), (16, 32));
        assert_eq!((u.a()[16], u.a()[17], u.a()[18]), (1.0, 4.0, 0.0));
        assert_eq!((u.b()[16], u.b()[17], u.b()[32], u.b()[48]), (32.0, 0.0, 1.0, 33.0));
    }

    #[test]
    fn what_is_no_update() {
        let shape = |rank, n_in, n_out| LowRankShape { rank, n_in, n_out };
        let refused = |shape, scale, a: &[f32], b: &[f32]| LowRank::new(shape, scale, a, b).err();
        for (shape, scale, a, b, why) in [
            (shape(0, 1, 1), 1.0, &[][..], &[][..], "rank 0"),
            (shape(1, 2, 1), 1.0, &[1.0], &[1.0], "1 elements of A"),
            (shape(usize::MAX, 2, 1), 1.0, &[1.0], &[1.0], "1 elements of A"),
            (shape(1, 1, 1), f32::NAN, &[1.0], &[1.0], "its scale is NaN"),
            (shape(1, 1, 1), 1.0, &[f32::NAN], &[1.0], "element 0 of A"),
            (shape(1, 1, 2), 1.0, &[1.0], &[1.0, f32::INFINITY], "element 1 of B"),
        ] {
            let error = refused(shape, scale, a, b).unwrap_or_default();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn updates_find_their_weights() {
        let graph = graph();
        let mut adapter = Adapter::new();
        let w = |i: u32| Weight(i);
        let mut insert =
            |weight, place, u| adapter.insert(&graph, weight, place, u).map_err(|e| e.to_string());
        assert_eq!(insert(w(0), Place::Embedding, update(6, 4)), Ok(()));
        assert_eq!(insert(w(0), Place::Product, update(4, 6)), Ok(()));
        assert_eq!(insert(w(1), Place::Product, update(4, 8)), Ok(()));
        for (weight, place, u, why) in [
            (1, Place::Product, update(4, 8), "`w`: there are two"),
            (0, Place::Embedding, update(6, 4), "`embd`: there are two"),
            (2, Place::Product, update(4, 8), "`down`: it maps 4 inputs to 8 outputs, the weight 8 to 4"),
            (2, Place::Embedding, update(4, 8), "`down`: it is not the token embedding"),
            (3, Place::Product, update(4, 1), "`norm`: it is not a matrix"),
            (4, Place::Product, update(4, 4), "`experts`: it is a stack of 3 experts"),
            (9, Place::Product, update(4, 4), "no such weight"),
        ] {
            let error = insert(w(weight), place, u).err().unwrap_or_default();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(adapter.fits(&graph) && !adapter.fits(&Graph::default()));
        assert_eq!((adapter.n_updates(), adapter.max_rank()), (3, 2));
        assert_eq!(adapter.bytes(), 4 * 16 * (6 + 2 + 4 + 2 + 4 + 2));
    }
}
