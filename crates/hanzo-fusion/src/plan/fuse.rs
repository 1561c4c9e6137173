//! Fusion: which nodes share a launch.
//!
//! A greedy list scheduling over the graph's order. Each node goes to the earliest place that its operands allow and
//! where it saves something:
//!
//! * a contraction joins the launch that contracts the same input (q/k/v, gate/up): the input is read once;
//! * an elementwise op whose operand is a contraction's result that nobody else reads becomes that launch's epilogue
//!   (bias, residual add, activation, gate · up, and the quantization of what comes out, which sees groups of columns): the
//!   result is not written and read again. An epilogue takes the results of at most two contractions;
//! * the quantization of an attention's result, if nobody else reads that and heads are whole groups, joins the attention;
//! * a row-wise op joins the last row-wise launch of its domain, if its operands are there by then (residual add + norm +
//!   quantize; q/k norm + rotation + cache write; softmax + top-k + gather + normalize): rows stay in cache, and threads
//!   meet once;
//! * anything else starts a launch; a recurrent op, which needs all rows of its sequence, is one alone.
//!
//! A node is placed once, so nothing is computed twice. Operands are never in a later launch than their reader; within
//! a launch, row-wise nodes and epilogues keep the graph's order.

use crate::graph::{Body, Graph, Op, Shape, Value};

use super::{Domain, Inputs, Launch, LaunchKind, PlanOptions, float_input};

/// Columns that are quantized together (`hanzo_quant::canonical::GROUP`).
const QUANTIZED_GROUP: usize = hanzo_quant::canonical::GROUP;

pub(super) fn fuse(graph: &Graph, options: PlanOptions, inputs: Inputs) -> Vec<Launch> {
    let mut fuser = Fuser {
        graph,
        n_users: count_users(graph, inputs),
        launch_of: vec![0; graph.nodes.len()],
        launches: Vec::new(),
    };
    for i in 0..graph.nodes.len() {
        fuser.place(Value(i as u32), options.fuse);
    }
    let Fuser { launch_of, mut launches, .. } = fuser;
    link(graph, inputs, &launch_of, &mut launches);
    launches
}

/// Calls `f` on every value that must be there when the op runs.
fn for_each_read(graph: &Graph, op: &Op, inputs: Inputs, mut f: impl FnMut(Value)) {
    op.for_each_input(&mut f);
    if inputs == Inputs::Kept
        && let Op::MatMul { x, .. } | Op::MoeMatMul { x, .. } = *op
    {
        let float = float_input(graph, x);
        if float != x {
            f(float);
        }
    }
}

fn count_users(graph: &Graph, inputs: Inputs) -> Vec<u32> {
    let mut n = vec![0; graph.nodes.len()];
    for node in &graph.nodes {
        for_each_read(graph, &node.op, inputs, |v| n[v.index()] += 1);
    }
    for result in graph.logits.iter().chain(&graph.hidden) {
        n[result.index()] += 1;
    }
    n
}

struct Fuser<'a> {
    graph: &'a Graph,
    n_users: Vec<u32>,
    launch_of: Vec<usize>,
    launches: Vec<Launch>,
}

impl Fuser<'_> {
    fn place(&mut self, value: Value, fuse: bool) {
        let node = &self.graph.nodes[value.index()];
        // First launch that may hold the node if it can share one with its operands.
        let mut ready = 0;
        node.op.for_each_input(|v| ready = ready.max(self.launch_of[v.index()]));
        let kind = match node.op {
            Op::MatMul { x, .. } => LaunchKind::Contract { x, ids: None, anchors: 1 },
            Op::MoeMatMul { x, ids, .. } => LaunchKind::Contract { x, ids: Some(ids), anchors: 1 },
            Op::Attention { .. } => LaunchKind::Attention,
            Op::CausalConv { .. } | Op::DeltaRule { .. } => LaunchKind::Recurrent,
            _ => LaunchKind::Rows(Domain::of(node.shape.rows)),
        };
        let home = if fuse { self.home(value, kind, ready) } else { None };
        let at = home.unwrap_or_else(|| {
            self.launches.push(Launch { kind, nodes: Vec::new(), reads: Vec::new(), writes: Vec::new() });
            self.launches.len() - 1
        });
        self.launch_of[value.index()] = at;
        let launch = &mut self.launches[at];
        match (&mut launch.kind, home.is_some(), kind) {
            // Contractions come before their epilogues.
            (LaunchKind::Contract { anchors, .. }, true, LaunchKind::Contract { .. }) => {
                launch.nodes.insert(*anchors, value);
                *anchors += 1;
            }
            _ => launch.nodes.push(value),
        }
    }

    /// The launch that takes the node, if one does.
    fn home(&self, value: Value, kind: LaunchKind, ready: usize) -> Option<usize> {
        match kind {
            LaunchKind::Attention | LaunchKind::Recurrent => None,
            LaunchKind::Contract { x, ids, .. } => self.launches.iter().rposition(
                |l| matches!(l.kind, LaunchKind::Contract { x: lx, ids: lids, .. } if lx == x && lids == ids),
            ),
            LaunchKind::Rows(domain) => {
                self.epilogue_home(value, ready).or(self.attention_home(value)).or_else(|| {
                    let at = self.launches.iter().rposition(|l| l.kind == LaunchKind::Rows(domain))?;
                    (at >= ready && self.rows_may_share(value, at)).then_some(at)
                })
            }
        }
    }

    /// A contraction launch whose epilogue the node can be: the node is elementwise, everything that it reads of that
    /// launch it alone reads, and the rest is there before.
    fn epilogue_home(&self, value: Value, ready: usize) -> Option<usize> {
        let node = &self.graph.nodes[value.index()];
        let contracts = matches!(self.launches.get(ready)?.kind, LaunchKind::Contract { .. });
        if !contracts || node.op.body() != Some(Body::Element) {
            return None;
        }
        let mut alone = true;
        let mut reads_it = false;
        node.op.for_each_input(|v| {
            if self.launch_of[v.index()] == ready {
                reads_it = true;
                let shape = self.graph.nodes[v.index()].shape;
                alone &= self.n_users[v.index()] == 1 && shape == Shape { elem: shape.elem, ..node.shape };
            }
        });
        (alone && reads_it && self.anchors_below(value, ready) <= 2).then_some(ready)
    }

    /// The attention launch whose result the node quantizes head by head.
    fn attention_home(&self, value: Value) -> Option<usize> {
        let Op::Quantize { x } = self.graph.nodes[value.index()].op else { return None };
        let Op::Attention { kv, .. } = self.graph.nodes[x.index()].op else { return None };
        let whole = self.graph.kv_layers.get(kv)?.v_head_dim.is_multiple_of(QUANTIZED_GROUP);
        (whole && self.n_users[x.index()] == 1).then(|| self.launch_of[x.index()])
    }

    /// Contractions of launch `at` that the node's result is made of.
    fn anchors_below(&self, value: Value, at: usize) -> usize {
        let (mut n, mut open) = (0, vec![value]);
        while let Some(v) = open.pop() {
            let op = &self.graph.nodes[v.index()].op;
            if matches!(op, Op::MatMul { .. } | Op::MoeMatMul { .. }) {
                n += 1;
            } else {
                op.for_each_input(|x| {
                    if self.launch_of[x.index()] == at {
                        open.push(x);
                    }
                });
            }
        }
        n
    }

    /// Whether a row-wise node's row needs only rows that the launch has made by then. Selecting rows reads other rows
    /// of its operand, so the operand must be complete.
    fn rows_may_share(&self, value: Value, at: usize) -> bool {
        match self.graph.nodes[value.index()].op {
            Op::SelectOutputs { x } => self.launch_of[x.index()] != at,
            _ => true,
        }
    }
}

/// Fills in what each launch reads and writes.
fn link(graph: &Graph, inputs: Inputs, launch_of: &[usize], launches: &mut [Launch]) {
    let mut crosses = vec![false; graph.nodes.len()];
    for result in graph.logits.iter().chain(&graph.hidden) {
        crosses[result.index()] = true;
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        for_each_read(graph, &node.op, inputs, |v| {
            if launch_of[v.index()] != launch_of[i] {
                crosses[v.index()] = true;
                let reads = &mut launches[launch_of[i]].reads;
                if graph.nodes[v.index()].shape.cols > 0 && !reads.contains(&v) {
                    reads.push(v);
                }
            }
        });
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        if crosses[i] && node.shape.cols > 0 {
            launches[launch_of[i]].writes.push(Value(i as u32));
        }
    }
}
