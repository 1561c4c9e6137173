//! Feed-forward blocks that several families share.

use hanzo_fusion::graph::Activation;
use hanzo_fusion::{Builder, Value, Weight};

use crate::Result;
use crate::hyper::{Hyper, MAX_EXPERTS};
use crate::weights::Weights;

/// Least divisor when the chosen experts' weights are normalized: 2^-14, the smallest normal f16.
const ROUTE_FLOOR: f32 = 6.103_515_6e-5;

/// A layer's feed-forward block, of either kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ffn {
    Dense(Glu),
    Experts(Moe),
    /// Routed experts, and one that every token uses, weighed by the sigmoid of its own gate.
    Shared {
        routed: Moe,
        shared: Glu,
        gate: Weight,
    },
}

impl Ffn {
    pub(crate) fn build(&self, g: &mut Builder, x: Value, act: Activation) -> Value {
        match self {
            Ffn::Dense(glu) => glu.build(g, x, act),
            Ffn::Experts(moe) => moe.build(g, x, act),
            Ffn::Shared { routed, shared, gate } => {
                let y = routed.build(g, x, act);
                let all = shared.build(g, x, act);
                let gate = g.matmul(x, *gate);
                let gate = g.activate(gate, Activation::Sigmoid);
                let all = g.mul_groups(all, gate);
                g.add(y, all)
            }
        }
    }
}

/// Gate, up and down: `down(act(gate(x)) · up(x))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glu {
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl Glu {
    pub(crate) fn new(w: &mut Weights<'_>, layer: usize, n_embd: usize, n_ff: usize) -> Result<Self> {
        Self::named(w, layer, "", n_embd, n_ff)
    }

    /// That of a shared expert.
    pub(crate) fn shared(w: &mut Weights<'_>, layer: usize, n_embd: usize, n_ff: usize) -> Result<Self> {
        Self::named(w, layer, "_shexp", n_embd, n_ff)
    }

    fn named(w: &mut Weights<'_>, layer: usize, suffix: &str, n_embd: usize, n_ff: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{suffix}.weight");
        Ok(Self {
            gate: w.matrix(&name("gate"), n_ff, n_embd)?,
            up: w.matrix(&name("up"), n_ff, n_embd)?,
            down: w.matrix(&name("down"), n_embd, n_ff)?,
        })
    }

    pub(crate) fn build(&self, g: &mut Builder, x: Value, act: Activation) -> Value {
        let gate = g.matmul(x, self.gate);
        let up = g.matmul(x, self.up);
        let gate = g.activate(gate, act);
        let h = g.mul(gate, up);
        g.matmul(h, self.down)
    }
}

/// Routed experts: softmax over the router's logits, the best `n_used`, their weights normalized to sum to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moe {
    n_used: usize,
    router: Weight,
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl Moe {
    pub(crate) fn new(
        h: &Hyper<'_>,
        w: &mut Weights<'_>,
        layer: usize,
        n_embd: usize,
        n_ff: usize,
    ) -> Result<Self> {
        let n_experts = h.count("expert_count", 1..=MAX_EXPERTS)?;
        let n_used = h.count("expert_used_count", 1..=MAX_EXPERTS)?;
        if n_used > n_experts {
            return Err(h.fault("expert_used_count", n_used, format!("at most the {n_experts} experts")));
        }
        let name = |part: &str| format!("blk.{layer}.ffn_{part}.weight");
        Ok(Self {
            n_used,
            router: w.matrix(&name("gate_inp"), n_experts, n_embd)?,
            gate: w.experts(&name("gate_exps"), n_experts, n_ff, n_embd)?,
            up: w.experts(&name("up_exps"), n_experts, n_ff, n_embd)?,
            down: w.experts(&name("down_exps"), n_experts, n_embd, n_ff)?,
        })
    }

    pub(crate) fn build(&self, g: &mut Builder, x: Value, act: Activation) -> Value {
        let scores = g.matmul(x, self.router);
        let probs = g.softmax(scores);
        let ids = g.top_k(probs, self.n_used);
        let weights = g.gather_cols(probs, ids);
        let weights = g.normalize_sum(weights, ROUTE_FLOOR);
        let gate = g.moe_matmul(x, self.gate, ids);
        let up = g.moe_matmul(x, self.up, ids);
        let gate = g.activate(gate, act);
        let h = g.mul(gate, up);
        let y = g.moe_matmul(h, self.down, ids);
        g.combine_slots(y, weights)
    }
}
