//! The board as LaTeX: every measured cell is a macro `\r<Backend><Role><Field>`, so the paper holds no number of its own.
//!
//! Backend is Cpu, Cuda, Metal, Rocm or Vulkan. Role is Decode (128 tokens), Prefill (512), PrefillRagged (500),
//! PrefillLong (2048) or PrefillMax (4096). Field is H (hanzo, tokens a second), Hci (half its 95 % interval), L
//! (llama.cpp), R (ratio) or V (verdict). `\r<Backend>EffBW`, `RoofBW`, `Reach` are decode's read rate, the roof, and
//! their quotient in percent. All of them are always defined; what was not measured is `\runpending`.

use std::fmt::Write as _;

use super::{as_precise, label, number, with_interval};
use crate::board::{Board, Row, RunBoard, Unit};
use crate::samples::Phase;

const BACKENDS: [(&str, &str); 5] =
    [("Cpu", "cpu"), ("Cuda", "cuda"), ("Metal", "metal"), ("Rocm", "rocm"), ("Vulkan", "vulkan")];
const ROLES: [(&str, Phase, u64); 5] = [
    ("Decode", Phase::Decode, 128),
    ("Prefill", Phase::Prefill, 512),
    ("PrefillRagged", Phase::Prefill, 500),
    ("PrefillLong", Phase::Prefill, 2048),
    ("PrefillMax", Phase::Prefill, 4096),
];
const WORKLOADS: [(&str, &str); 3] =
    [("Sustain", "sustained-reuse"), ("Code", "code-copy"), ("Novel", "novel")];
const HEAD: &str = "% Made by `hanzo-bench stats` from committed samples; do not edit.\n\
                    \\providecommand{\\runpending}{\\textit{\\small run pending}}\n";

fn define(out: &mut String, name: &str, value: Option<String>) {
    let _ = writeln!(out, "\\def\\r{name}{{{}}}", value.unwrap_or_else(|| "\\runpending{}".to_owned()));
}

/// Text that LaTeX takes literally.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_ascii() && !c.is_ascii_control() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

/// The run that speaks for a backend: the first of it that was given.
fn headline<'a>(board: &'a Board, backend: &str) -> Option<&'a RunBoard> {
    board.runs.iter().find(|r| r.manifest.backend == backend)
}

/// `results-data.tex`: the macros of the headline runs.
pub fn data(board: &Board) -> String {
    let mut out = HEAD.to_owned();
    for (macro_name, backend) in BACKENDS {
        let run = headline(board, backend);
        for (role, phase, n) in ROLES {
            let row = run.and_then(|r| r.find(phase, n));
            fields(&mut out, &format!("{macro_name}{role}"), row);
        }
        let hanzo = run.and_then(|r| r.find(Phase::Decode, 128)).and_then(|r| r.hanzo.as_ref());
        let gb = |x: f64| number(x / 1e9);
        define(&mut out, &format!("{macro_name}EffBW"), hanzo.and_then(|h| h.read_rate).map(gb));
        define(&mut out, &format!("{macro_name}RoofBW"), run.and_then(|r| r.read_roof).map(gb));
        let reach = hanzo.and_then(|h| h.read_share).map(|x| format!("{:.0}\\%", 100.0 * x));
        define(&mut out, &format!("{macro_name}Reach"), reach);
        define(&mut out, &format!("{macro_name}Model"), run.map(|r| escape(&r.manifest.tag)));
        define(&mut out, &format!("{macro_name}Processor"), run.map(|r| escape(&r.manifest.cpu)));
        define(&mut out, &format!("{macro_name}Peer"), run.and_then(|r| r.engines.1.as_deref()).map(escape));
        define(&mut out, &format!("{macro_name}Threads"), run.map(|r| r.manifest.threads.to_string()));
        define(&mut out, &format!("{macro_name}Date"), run.map(|r| escape(&r.manifest.date)));
    }
    out
}

fn fields(out: &mut String, name: &str, row: Option<&Row>) {
    let hanzo = row.and_then(|r| r.hanzo.as_ref());
    let peer = row.and_then(|r| r.peer.as_ref());
    define(out, &format!("{name}H"), hanzo.map(|m| number(m.mean)));
    define(out, &format!("{name}Hci"), hanzo.and_then(|m| m.half_width.map(|h| as_precise(h, m.mean))));
    define(out, &format!("{name}L"), peer.map(|m| number(m.mean)));
    define(out, &format!("{name}R"), row.and_then(|r| r.ratio).map(|r| format!("{r:.2}")));
    define(out, &format!("{name}V"), row.and_then(|r| r.verdict).map(str::to_owned));
}

/// A run's model, and what a reader must know of it at first sight.
fn name(run: &RunBoard) -> String {
    let synthetic = if run.manifest.model.name.starts_with("synthetic-") { "$^{\\dagger}$" } else { "" };
    let busy = if run.was_busy { " \\emph{busy}" } else { "" };
    format!("{}{synthetic}{busy}", escape(&run.manifest.tag))
}

/// `results-board.tex`: the table of all runs.
pub fn board(board: &Board) -> String {
    let mut out = HEAD.to_owned();
    // Longer than a page as soon as there are some models.
    out.push_str("\\begin{longtable}{@{}llrrrrl@{}}\\toprule\n");
    out.push_str(
        "model & what & hanzo & llama.cpp & $n$ & ratio & verdict \\\\\\midrule\\endhead\n\\bottomrule\\endfoot\n",
    );
    if board.runs.is_empty() {
        out.push_str("\\runpending{} & & & & & & \\\\\n");
    }
    for (i, run) in board.runs.iter().enumerate() {
        if i > 0 {
            out.push_str("\\addlinespace\n");
        }
        // Whole requests have no peer.
        for (j, row) in run.rows.iter().filter(|r| r.shape.phase != Phase::Request).enumerate() {
            let side = |m: &Option<crate::board::Measured>| {
                m.as_ref().map_or_else(
                    || "\\runpending{}".to_owned(),
                    |m| {
                        let unit = if row.unit == Unit::Seconds { "\\,s" } else { "" };
                        let flag = if m.noisy { "$^{*}$" } else { "" };
                        format!("${}${unit}{flag}", with_interval(m, " \\pm "))
                    },
                )
            };
            let ratio = match (row.ratio, row.ratio_interval) {
                (Some(r), Some((low, high))) => {
                    format!("${r:.2}$ {{\\footnotesize $[{low:.2}, {high:.2}]$}}")
                }
                (Some(r), None) => format!("${r:.2}$"),
                (None, _) => "\\runpending{}".to_owned(),
            };
            let n =
                |m: &Option<crate::board::Measured>| m.as_ref().map_or("--".to_owned(), |m| m.n.to_string());
            let _ = writeln!(
                out,
                "{} & {} & {} & {} & {}, {} & {ratio} & {} \\\\",
                if j == 0 { name(run) } else { String::new() },
                escape(&label(&row.shape)),
                side(&row.hanzo),
                side(&row.peer),
                n(&row.hanzo),
                n(&row.peer),
                row.verdict.unwrap_or("\\runpending{}"),
            );
        }
    }
    out.push_str("\\end{longtable}\n");
    out
}

/// `results-spec.tex`: the macros of prompt lookup, of the first run that has some.
pub fn speculation(board: &Board) -> String {
    let mut out = HEAD.to_owned();
    let run = board.runs.iter().find(|r| !r.speculation.is_empty());
    for (name, workload) in WORKLOADS {
        let best = run.and_then(|r| r.best_speculation(workload));
        define(&mut out, &format!("Spec{name}Mult"), best.map(|s| format!("{:.2}", s.multiple)));
        let over = best.and_then(|s| s.over_peer).map(|x| format!("{x:.2}"));
        define(&mut out, &format!("Spec{name}VsLl"), over);
        define(&mut out, &format!("Spec{name}Gamma"), best.map(|s| s.gamma.to_string()));
        let same = best.and_then(|s| s.same_reply).map(|same| if same { "yes" } else { "NO" }.to_owned());
        define(&mut out, &format!("Spec{name}Same"), same);
    }
    let gamma = run.and_then(|r| r.best_speculation("sustained-reuse")).map(|s| s.gamma.to_string());
    define(&mut out, "SpecGamma", gamma);
    define(&mut out, "SpecModel", run.map(|r| escape(&r.manifest.tag)));
    out
}
