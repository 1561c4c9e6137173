//! The arena: a slot for every value that crosses launches, reused once its value is dead.

use crate::graph::{Elem, Graph, Shape, Value};

use super::{Domain, Launch};

/// A buffer of the arena. Values with disjoint lives share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Element type of all its values.
    pub elem: Elem,
    /// Rows of all its values are of this domain.
    pub domain: Domain,
    /// Types of the values that it holds, one after the other. It must be large enough for each.
    pub shapes: Vec<Shape>,
}

/// A slot for each value that launches leave to later ones. A value lives from the launch that writes it to the last one
/// that reads it, both included, so a launch's results never share a slot with its operands.
pub(super) fn assign(graph: &Graph, launches: &[Launch]) -> (Vec<Slot>, Vec<Option<usize>>) {
    let mut last_read = vec![0; graph.nodes.len()];
    for (i, launch) in launches.iter().enumerate() {
        for v in launch.reads.iter().chain(&launch.writes) {
            last_read[v.index()] = last_read[v.index()].max(i);
        }
    }
    if let Some(hidden) = graph.hidden {
        // It is there to be fetched once the step is over.
        last_read[hidden.index()] = launches.len();
    }
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of = vec![None; graph.nodes.len()];
    let mut free: Vec<usize> = Vec::new();
    let mut held: Vec<Value> = Vec::new();
    for (i, launch) in launches.iter().enumerate() {
        for &v in launch.writes.iter().filter(|v| Some(**v) != graph.logits) {
            let shape = graph.nodes[v.index()].shape;
            let slot = take(&mut free, &slots, shape).unwrap_or_else(|| {
                slots.push(Slot { elem: shape.elem, domain: Domain::of(shape.rows), shapes: Vec::new() });
                slots.len() - 1
            });
            if !slots[slot].shapes.contains(&shape) {
                slots[slot].shapes.push(shape);
            }
            slot_of[v.index()] = Some(slot);
            held.push(v);
        }
        held.retain(|v| {
            let dead = last_read[v.index()] <= i;
            if dead && let Some(slot) = slot_of[v.index()] {
                free.push(slot);
            }
            !dead
        });
    }
    (slots, slot_of)
}

/// The free slot that fits best: the smallest that is large enough, else the largest.
fn take(free: &mut Vec<usize>, slots: &[Slot], shape: Shape) -> Option<usize> {
    let need = units(shape);
    let size = |slot: usize| slots[slot].shapes.iter().map(|s| units(*s)).max().unwrap_or(0);
    let best = (0..free.len())
        .filter(|&f| {
            let slot = &slots[free[f]];
            let alike = slot.elem == shape.elem && slot.domain == Domain::of(shape.rows);
            // Devices lay quantized rows out by their length.
            alike && (shape.elem != Elem::Quantized || slot.shapes == [shape])
        })
        .min_by_key(|&f| {
            let have = size(free[f]);
            if have >= need { (0, have) } else { (1, usize::MAX - have) }
        })?;
    Some(free.swap_remove(best))
}

/// Elements a row of the domain.
fn units(shape: Shape) -> usize {
    match shape.rows {
        crate::graph::Rows::Slots(k) => shape.cols.saturating_mul(k),
        _ => shape.cols,
    }
}
