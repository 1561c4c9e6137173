//! Lowering: the graph as devices run it.
//!
//! * Ops that no result depends on are dropped.
//! * [`Op::SelectOutputs`] moves up: what is computed only for wanted rows is computed for these rows only (in prefill,
//!   the last layer's feed-forward part and the head). Rows do not see each other, so no bit changes.
//! * What only logits are made of is computed for rows of logits only, not for those whose hidden states are wanted.
//! * Every input of a contraction whose weight has an integer view is quantized, once, whoever reads it.

use std::collections::HashMap;

use crate::graph::{Elem, Graph, GraphError, Node, Op, Rows, Shape, Value};

pub(super) fn lower(graph: &Graph) -> Result<Graph, GraphError> {
    if graph.logits.or(graph.hidden).is_none() {
        return Err(GraphError::NoOutput);
    }
    check_order(graph)?;
    let graph = narrow_logits(sink_outputs(graph));
    let graph = quantize_inputs(&graph);
    Ok(drop_dead(&graph))
}

/// As [`lower`], but rows are selected where the graph does, so that every layer sees all of them.
pub(super) fn lower_all_rows(graph: &Graph) -> Result<Graph, GraphError> {
    if graph.logits.is_none() {
        return Err(GraphError::NoOutput);
    }
    check_order(graph)?;
    Ok(drop_dead(&quantize_inputs(&narrow_logits(graph.clone()))))
}

/// Every node reads earlier ones only, and the result exists.
fn check_order(graph: &Graph) -> Result<(), GraphError> {
    let fault = |op: &str, reason: &str| GraphError::Shape { op: op.to_owned(), reason: reason.to_owned() };
    for (i, node) in graph.nodes.iter().enumerate() {
        let mut later = false;
        node.op.for_each_input(|v| later |= v.index() >= i);
        if later {
            return Err(fault(node.op.name(), "reads a value that is made later"));
        }
    }
    for result in graph.logits.into_iter().chain(graph.hidden) {
        if graph.node(result).is_none() {
            return Err(fault("result", "no such value"));
        }
    }
    Ok(())
}

/// The same graph without its nodes.
fn emptied(graph: &Graph) -> Graph {
    Graph { nodes: Vec::with_capacity(graph.nodes.len()), ..graph.clone() }
}

fn push(graph: &mut Graph, node: Node) -> Value {
    graph.nodes.push(node);
    Value((graph.nodes.len() - 1) as u32)
}

/// Nodes that the results depend on.
fn live(graph: &Graph) -> Vec<bool> {
    made_of(graph, graph.logits.iter().chain(&graph.hidden))
}

/// Nodes that `results` depend on.
fn made_of<'a>(graph: &Graph, results: impl Iterator<Item = &'a Value>) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    for result in results {
        if let Some(l) = live.get_mut(result.index()) {
            *l = true;
        }
    }
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        if live[i] {
            node.op.for_each_input(|v| live[v.index()] = true);
        }
    }
    live
}

fn drop_dead(graph: &Graph) -> Graph {
    let live = live(graph);
    let mut out = emptied(graph);
    let mut new = vec![Value(0); graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        if live[i] {
            let mut node = node.clone();
            node.op.map_inputs(|v| new[v.index()]);
            new[i] = push(&mut out, node);
        }
    }
    (out.logits, out.hidden) = (graph.logits.map(|v| new[v.index()]), graph.hidden.map(|v| new[v.index()]));
    out
}

fn sink_outputs(graph: &Graph) -> Graph {
    let n = graph.nodes.len();
    // A value is wanted for outputs only when somebody reads it and nobody needs all its rows.
    let live = live(graph);
    let mut read = vec![false; n];
    let mut needs_all = vec![false; n];
    for result in graph.logits.iter().chain(&graph.hidden) {
        needs_all[result.index()] = true;
    }
    for (i, node) in graph.nodes.iter().enumerate().rev().filter(|(i, _)| live[*i]) {
        let narrow = node.shape.rows == Rows::Tokens && read[i] && !needs_all[i] && node.op.takes_any_rows();
        let selects = matches!(node.op, Op::SelectOutputs { .. });
        if !narrow {
            needs_all[i] = true;
        }
        node.op.for_each_input(|v| {
            read[v.index()] = true;
            needs_all[v.index()] |= !(narrow || selects);
        });
    }
    let mut out = emptied(graph);
    let mut new = vec![Value(0); n];
    let mut selected: HashMap<Value, Value> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        let mut node = node.clone();
        let narrow = node.shape.rows == Rows::Tokens && !needs_all[i];
        if let Op::SelectOutputs { x } = node.op
            && !needs_all[x.index()]
        {
            new[i] = new[x.index()];
            continue;
        }
        if narrow {
            node.shape.rows = Rows::Outputs;
            let mut inputs = Vec::new();
            node.op.for_each_input(|v| inputs.push(v));
            for v in inputs.into_iter().filter(|v| needs_all[v.index()]) {
                let (source, cols, elem) = (new[v.index()], graph.nodes[v.index()].shape.cols, Elem::F32);
                selected.entry(v).or_insert_with(|| {
                    let op = Op::SelectOutputs { x: source };
                    let shape = Shape { rows: Rows::Outputs, cols, elem };
                    push(&mut out, Node { op, shape, layer: node.layer })
                });
            }
            node.op.map_inputs(|v| selected.get(&v).copied().unwrap_or(new[v.index()]));
        } else {
            node.op.map_inputs(|v| new[v.index()]);
        }
        new[i] = push(&mut out, node);
    }
    (out.logits, out.hidden) = (graph.logits.map(|v| new[v.index()]), graph.hidden.map(|v| new[v.index()]));
    out
}

/// Rows of what hidden states are not made of: of logits only.
fn narrow_logits(mut graph: Graph) -> Graph {
    let of_hidden = made_of(&graph, graph.hidden.iter());
    for (node, of_hidden) in graph.nodes.iter_mut().zip(of_hidden) {
        if node.shape.rows == Rows::Outputs && !of_hidden {
            node.shape.rows = Rows::Logits;
        }
    }
    graph
}

fn quantize_inputs(graph: &Graph) -> Graph {
    let mut wanted = vec![false; graph.nodes.len()];
    for node in &graph.nodes {
        if let Some(x) = int_input(graph, node) {
            wanted[x.index()] = true;
        }
    }
    let mut out = emptied(graph);
    let mut new = vec![Value(0); graph.nodes.len()];
    let mut quantized = new.clone();
    for (i, node) in graph.nodes.iter().enumerate() {
        let input = int_input(graph, node);
        let mut node = node.clone();
        node.op.map_inputs(|v| if input == Some(v) { quantized[v.index()] } else { new[v.index()] });
        let (shape, layer) = (Shape { elem: Elem::Quantized, ..node.shape }, node.layer);
        new[i] = push(&mut out, node);
        if wanted[i] {
            // Right behind what it reads, so that it joins the same launch.
            quantized[i] = push(&mut out, Node { op: Op::Quantize { x: new[i] }, shape, layer });
        }
    }
    (out.logits, out.hidden) = (graph.logits.map(|v| new[v.index()]), graph.hidden.map(|v| new[v.index()]));
    out
}

/// The f32 input of a contraction of integers.
fn int_input(graph: &Graph, node: &Node) -> Option<Value> {
    let (Op::MatMul { x, weight } | Op::MoeMatMul { x, weight, .. }) = node.op else { return None };
    let int = graph.weights.get(weight.index()).is_some_and(|w| w.ty.format().int.is_some());
    (int && graph.node(x)?.shape.elem == Elem::F32).then_some(x)
}
