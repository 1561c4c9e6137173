//! A graph evaluated the plain way, in f64, for one sequence from its first token: what the executor is held against.

use std::collections::HashMap;

use hanzo_fusion::graph::{Activation, Graph, Op, RopeStyle, Rows, Value, Weight};

/// Rows of every value.
type Matrix = Vec<Vec<f64>>;

/// Logits of all positions; `weights` are decoded, one entry a weight of the graph.
pub(super) fn logits(graph: &Graph, weights: &[Vec<f32>], tokens: &[u32]) -> Matrix {
    graph.logits.map(|v| value(graph, weights, tokens, v)).unwrap_or_default()
}

/// A value of the graph, at all positions.
pub(super) fn value(graph: &Graph, weights: &[Vec<f32>], tokens: &[u32], wanted: Value) -> Matrix {
    values(graph, weights, tokens).swap_remove(wanted.index())
}

/// The value of every node.
pub(super) fn values(graph: &Graph, weights: &[Vec<f32>], tokens: &[u32]) -> Vec<Matrix> {
    let mut values: Vec<Matrix> = Vec::new();
    let mut caches: HashMap<usize, (Matrix, Matrix)> = HashMap::new();
    for node in &graph.nodes {
        let get = |v: Value| &values[v.index()];
        let decl = |w: Weight| &graph.weights[w.index()];
        let weight = |w: Weight| weights[w.index()].iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let row = |w: Weight, at: usize| {
            let n = decl(w).n_in;
            weights[w.index()][at * n..(at + 1) * n].iter().map(|&x| f64::from(x)).collect::<Vec<_>>()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let map = |x, f: &dyn Fn(f64) -> f64| -> Matrix {
            get(x).iter().map(|r: &Vec<f64>| r.iter().map(|&x| f(x)).collect()).collect()
        };
        let zip = |a, b, f: &dyn Fn(f64, f64) -> f64| -> Matrix {
            let rows = get(a).iter().zip(get(b));
            rows.map(|(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect())
                .collect()
        };
        let by_row = |x, f: &dyn Fn(&[f64]) -> Vec<f64>| -> Matrix {
            get(x).iter().map(|r: &Vec<f64>| f(r)).collect()
        };
        let out: Matrix = match node.op {
            Op::Embed { weight } => tokens.iter().map(|&t| row(weight, t as usize)).collect(),
            Op::EmbedPosition { weight } => (0..tokens.len()).map(|p| row(weight, p)).collect(),
            Op::Quantize { x } => get(x).clone(),
            Op::MatMul { x, weight } => {
                by_row(x, &|r| (0..decl(weight).n_out).map(|n| dot(r, &row(weight, n))).collect())
            }
            Op::MoeMatMul { x, weight, ids } => {
                let k = get(ids)[0].len();
                let div = if matches!(graph.nodes[x.index()].shape.rows, Rows::Slots(_)) { 1 } else { k };
                let n_out = decl(weight).n_out;
                (0..tokens.len() * k)
                    .map(|p| {
                        let expert = get(ids)[p / k][p % k] as usize;
                        (0..n_out).map(|n| dot(&get(x)[p / div], &row(weight, expert * n_out + n))).collect()
                    })
                    .collect()
            }
            Op::Add { a, b } => zip(a, b, &|a, b| a + b),
            Op::Mul { a, b } => zip(a, b, &|a, b| a * b),
            Op::AddWeight { x, weight: w } => {
                by_row(x, &|r| r.iter().zip(weight(w)).map(|(x, w)| x + w).collect())
            }
            Op::MulWeight { x, weight: w } => {
                by_row(x, &|r| r.iter().zip(weight(w)).map(|(x, w)| x * w).collect())
            }
            Op::Scale { x, factor } => map(x, &|x| x * f64::from(factor)),
            Op::Activate { x, f } => map(x, &|x| match f {
                Activation::Silu => x / (1.0 + (-x).exp()),
                Activation::GeluTanh => {
                    0.5 * x
                        * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
                }
                Activation::Gelu => {
                    x * f64::from(hanzo_quant::math::gelu_erf(x as f32)) / f64::from(x as f32)
                }
                Activation::Relu => x.max(0.0),
                Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                Activation::Tanh => x.tanh(),
                Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            }),
            Op::Softcap { x, cap } => map(x, &|x| f64::from(cap) * (x / f64::from(cap)).tanh()),
            Op::RmsNorm { x, weight: w, group, eps } => {
                let w = w.map_or(vec![1.0; group], weight);
                by_row(x, &|r| {
                    let groups = r.chunks(group).flat_map(|g| {
                        let inv = 1.0 / (dot(g, g) / group as f64 + f64::from(eps)).sqrt();
                        g.iter().zip(&w).map(|(x, w)| x * inv * w).collect::<Vec<_>>()
                    });
                    groups.collect()
                })
            }
            Op::LayerNorm { x, weight: w, bias, group, eps } => {
                let (w, b) = (w.map_or(vec![1.0; group], weight), bias.map_or(vec![0.0; group], weight));
                by_row(x, &|r| {
                    let groups = r.chunks(group).flat_map(|g| {
                        let mean = g.iter().sum::<f64>() / group as f64;
                        let var = g.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / group as f64;
                        let inv = 1.0 / (var + f64::from(eps)).sqrt();
                        let out = g.iter().zip(&w).zip(&b).map(|((x, w), b)| (x - mean) * inv * w + b);
                        out.collect::<Vec<_>>()
                    });
                    groups.collect()
                })
            }
            Op::Rope { x, head_dim, table } => {
                let spec = &graph.ropes[table];
                let rotate = |(p, r): (usize, &Vec<f64>)| -> Vec<f64> {
                    let mut out = r.clone();
                    for head in out.chunks_mut(head_dim) {
                        let half = spec.inv_freq.len();
                        for (i, f) in spec.inv_freq.iter().enumerate() {
                            let (a, b) = match spec.style {
                                RopeStyle::Halves => (i, i + half),
                                RopeStyle::Pairs => (2 * i, 2 * i + 1),
                            };
                            let (sin, cos) = (p as f64 * f).sin_cos();
                            let m = f64::from(spec.magnitude);
                            (head[a], head[b]) =
                                ((head[a] * cos - head[b] * sin) * m, (head[b] * cos + head[a] * sin) * m);
                        }
                    }
                    out
                };
                get(x).iter().enumerate().map(rotate).collect()
            }
            Op::KvWrite { k, v, kv } => {
                caches.insert(kv, (get(k).clone(), get(v).clone()));
                vec![Vec::new(); tokens.len()]
            }
            Op::Attention { q, kv, ref spec, .. } => {
                let (layer, (k, v)) = (graph.kv_layers[kv], &caches[&kv]);
                let (kd, vd, group) = (layer.k_head_dim, layer.v_head_dim, spec.n_heads / layer.n_kv_heads);
                let attend = |(p, q): (usize, &Vec<f64>)| -> Vec<f64> {
                    let first = layer.window.map_or(0, |w| (p + 1).saturating_sub(w as usize));
                    let mut out = Vec::new();
                    for (h, q) in q.chunks(kd).enumerate() {
                        let head = h / group;
                        let last = if graph.bidirectional { tokens.len() - 1 } else { p };
                        let mut scores: Vec<f64> = (first..=last)
                            .map(|t| dot(q, &k[t][head * kd..(head + 1) * kd]) * f64::from(spec.scale))
                            .map(|s| spec.softcap.map_or(s, |c| f64::from(c) * (s / f64::from(c)).tanh()))
                            .collect();
                        let sink = spec.sinks.map(|w| weight(w)[h]);
                        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                        scores.iter_mut().for_each(|s| *s = (*s - max).exp());
                        let sum = scores.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
                        for d in 0..vd {
                            let o: f64 =
                                scores.iter().enumerate().map(|(i, s)| s * v[first + i][head * vd + d]).sum();
                            out.push(o / sum);
                        }
                    }
                    out
                };
                get(q).iter().enumerate().map(attend).collect()
            }
            Op::Softmax { x } => by_row(x, &|r| {
                let max = r.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let e: Vec<f64> = r.iter().map(|x| (x - max).exp()).collect();
                let sum: f64 = e.iter().sum();
                e.iter().map(|x| x / sum).collect()
            }),
            Op::TopK { x, k } => by_row(x, &|r| {
                let mut ids: Vec<usize> = (0..r.len()).collect();
                ids.sort_by(|a, b| r[*b].total_cmp(&r[*a]).then(a.cmp(b)));
                ids[..k].iter().map(|&i| i as f64).collect()
            }),
            Op::GatherCols { x, ids } => {
                let rows = get(x).iter().zip(get(ids));
                rows.map(|(r, ids): (&Vec<f64>, &Vec<f64>)| ids.iter().map(|&i| r[i as usize]).collect())
                    .collect()
            }
            Op::NormalizeSum { x, floor } => by_row(x, &|r| {
                let sum = r.iter().sum::<f64>().max(f64::from(floor));
                r.iter().map(|x| x / sum).collect()
            }),
            Op::CombineSlots { x, weights } => get(weights)
                .iter()
                .enumerate()
                .map(|(t, w): (usize, &Vec<f64>)| {
                    let n = get(x)[0].len();
                    (0..n)
                        .map(|c| {
                            w.iter()
                                .enumerate()
                                .map(|(j, w)| w * get(x)[t * w_len(get(weights)) + j][c])
                                .sum()
                        })
                        .collect()
                })
                .collect(),
            Op::SliceCols { x, group, start, len } => {
                by_row(x, &|r| r.chunks(group).flat_map(|g| g[start..start + len].to_vec()).collect())
            }
            Op::MulGroups { x, by } => {
                let groups = |(x, by): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
                    let n = x.len() / by.len();
                    x.iter().enumerate().map(|(c, x)| x * by[c / n]).collect()
                };
                get(x).iter().zip(get(by)).map(groups).collect()
            }
            Op::CausalConv { x, weight, .. } => {
                let (rows, n) = (get(x), decl(weight).n_in);
                let filter = |t: usize| -> Vec<f64> {
                    let tap = |c: usize, j: usize| {
                        let x = (t + 1 + j).checked_sub(n).map_or(0.0, |r| rows[r][c]);
                        x * f64::from(weights[weight.index()][c * n + j])
                    };
                    (0..rows[t].len()).map(|c| (0..n).map(|j| tap(c, j)).sum()).collect()
                };
                (0..tokens.len()).map(filter).collect()
            }
            Op::DeltaRule { q, k, v, g, beta, ref spec, .. } => {
                let (dk, dv) = (spec.k_head_dim, spec.v_head_dim);
                let mut states = vec![vec![0.0; dk * dv]; spec.n_v_heads];
                let mut row = |t: usize| -> Vec<f64> {
                    let mut out = Vec::new();
                    for (h, s) in states.iter_mut().enumerate() {
                        let key = spec.key_head(h) * dk;
                        let (q, k) = (&get(q)[t][key..key + dk], &get(k)[t][key..key + dk]);
                        let decay = get(g)[t][h].exp();
                        s.iter_mut().for_each(|s| *s *= decay);
                        for j in 0..dv {
                            let read: f64 = (0..dk).map(|i| s[i * dv + j] * k[i]).sum();
                            let update = (get(v)[t][h * dv + j] - read) * get(beta)[t][h];
                            (0..dk).for_each(|i| s[i * dv + j] += k[i] * update);
                            out.push((0..dk).map(|i| s[i * dv + j] * q[i]).sum());
                        }
                    }
                    out
                };
                (0..tokens.len()).map(&mut row).collect()
            }
            Op::SelectOutputs { x } => get(x).clone(),
        };
        values.push(out);
    }
    values
}

fn w_len(weights: &Matrix) -> usize {
    weights.first().map_or(0, Vec::len)
}
