//! The board as Markdown.

use std::fmt::Write as _;

use super::{PENDING, label, number, with_interval};
use crate::board::{Board, Measured, Row, RunBoard, Unit};
use crate::samples::Phase;

/// The whole board, for a reader who wants all of it.
pub fn board(board: &Board) -> String {
    let mut out = String::new();
    for run in &board.runs {
        let _ = write!(out, "## {}\n\n{}\n", run.manifest.tag, provenance(run));
        table(&mut out, &[run], false);
        speculation(&mut out, run);
        extras(&mut out, run);
        out.push('\n');
    }
    out
}

/// The measured part of a page: one table of all runs, under the chart where there is one.
pub fn summary(board: &Board, chart: Option<&str>) -> String {
    let Some(first) = board.runs.first() else {
        return format!("No run is committed yet: {PENDING}.\n");
    };
    let mut out = chart.map_or_else(String::new, |chart| {
        format!("![How many times as fast as the peer, with 95 % intervals]({chart})\n\n")
    });
    let _ = writeln!(
        out,
        "{}, {} threads, {}. Peer: {}. Speeds in tokens a second, mean ± half the 95 % interval (Student's t); ratios with their 95 % \
         interval (delta method); WIN or LOSS where it leaves 1 out. Counts of repetitions stand after the speeds.\n",
        processor(first),
        first.manifest.threads,
        first.manifest.date,
        first.engines.1.as_deref().unwrap_or(PENDING),
    );
    if board.runs.iter().any(|r| r.was_busy) {
        out.push_str("**Some of it was taken on a busy machine: see the runs' quiet-gate.txt.**\n\n");
    }
    let runs: Vec<&RunBoard> = board.runs.iter().collect();
    table(&mut out, &runs, true);
    for run in &board.runs {
        speculation(&mut out, run);
    }
    out
}

fn processor(run: &RunBoard) -> &str {
    if run.manifest.cpu.is_empty() { "unknown processor" } else { &run.manifest.cpu }
}

fn provenance(run: &RunBoard) -> String {
    let m = &run.manifest;
    let mut out = format!(
        "{} · {} · {} threads · {} · {} of {} · {} ({} bytes, SHA-256 {})\n",
        m.date,
        processor(run),
        m.threads,
        m.backend,
        run.engines.0,
        if m.hanzo_commit.is_empty() { "an unknown commit" } else { &m.hanzo_commit },
        m.model.name,
        m.model.bytes,
        m.model.sha256,
    );
    let _ = writeln!(out, "against {}", run.engines.1.as_deref().unwrap_or(PENDING));
    if let (Some(read), int8) = (run.read_roof, run.int8_roof) {
        let int8 =
            int8.map_or_else(|| "no int8 probe".to_owned(), |x| format!("int8 {} Gop/s", number(x / 1e9)));
        let _ = writeln!(out, "roofs: read {} GB/s, {int8}", number(read / 1e9));
    }
    if run.was_busy {
        out.push_str("\n**The machine was busy: these figures say little. See quiet-gate.txt.**\n");
    }
    out
}

fn table(out: &mut String, runs: &[&RunBoard], with_model: bool) {
    let model = if with_model { "model | " } else { "" };
    let rule = if with_model { "---|" } else { "" };
    let _ =
        writeln!(out, "| {model}what | hanzo | peer | ratio | | of the roof, hanzo | of the roof, peer |");
    let _ = writeln!(out, "|{rule}---|---|---|---|---|---|---|");
    for run in runs {
        // Whole requests have no peer: they stand below the table.
        for row in run.rows.iter().filter(|r| r.shape.phase != Phase::Request) {
            let model = if with_model { format!("{} | ", run.manifest.tag) } else { String::new() };
            let _ = writeln!(
                out,
                "| {model}{} | {} | {} | {} | {} | {} | {} |",
                label(&row.shape),
                side(row, row.hanzo.as_ref()),
                side(row, row.peer.as_ref()),
                ratio(row),
                row.verdict.unwrap_or(if row.ratio.is_some() { "no interval" } else { PENDING }),
                share(row.hanzo.as_ref()),
                share(row.peer.as_ref()),
            );
        }
    }
    out.push('\n');
    if runs.iter().flat_map(|r| &r.rows).flat_map(|r| [&r.hanzo, &r.peer]).flatten().any(|m| m.noisy) {
        out.push_str("⚠: coefficient of variation above 5 %.\n\n");
    }
}

fn side(row: &Row, m: Option<&Measured>) -> String {
    m.map_or_else(
        || PENDING.to_owned(),
        |m| {
            let unit = if row.unit == Unit::Seconds { " s" } else { "" };
            let flag = if m.noisy { " ⚠" } else { "" };
            format!("{}{unit} ({}){flag}", with_interval(m, " ± "), m.n)
        },
    )
}

fn ratio(row: &Row) -> String {
    match (row.ratio, row.ratio_interval) {
        (Some(r), Some((low, high))) => format!("**{r:.2}** [{low:.2}, {high:.2}]"),
        (Some(r), None) => format!("{r:.2}"),
        (None, _) => PENDING.to_owned(),
    }
}

/// Share of whichever roof binds the phase: reading for decode, int8 for prefill.
fn share(m: Option<&Measured>) -> String {
    let Some(m) = m else { return String::new() };
    match (m.read_share, m.int8_share) {
        (Some(x), _) => {
            format!("{:.0} % read ({} GB/s)", 100.0 * x, number(m.read_rate.unwrap_or(0.0) / 1e9))
        }
        (None, Some(x)) => format!("{:.0} % int8", 100.0 * x),
        (None, None) => String::new(),
    }
}

fn speculation(out: &mut String, run: &RunBoard) {
    if run.speculation.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "Prompt lookup on {} (an algorithm, not a kernel: its multiples never enter the table of speeds). Replies with and without \
         it must have the same SHA-256.\n",
        run.manifest.tag
    );
    out.push_str("| workload | γ | over plain decode | over the peer | drafts right | same reply |\n|---|---|---|---|---|---|\n");
    let times = |x: Option<f64>, i: Option<(f64, f64)>| match (x, i) {
        (Some(x), Some((low, high))) => format!("{x:.2} × [{low:.2}, {high:.2}]"),
        (Some(x), None) => format!("{x:.2} ×"),
        (None, _) => PENDING.to_owned(),
    };
    for s in &run.speculation {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            s.workload,
            s.gamma,
            times(Some(s.multiple), s.multiple_interval),
            times(s.over_peer, s.over_peer_interval),
            s.accepted.map_or_else(|| "no drafts".to_owned(), |a| format!("{:.0} %", 100.0 * a)),
            match s.same_reply {
                Some(true) => "yes",
                Some(false) => "**NO**",
                None => PENDING,
            },
        );
    }
    out.push('\n');
}

fn extras(out: &mut String, run: &RunBoard) {
    for row in run.rows.iter().filter(|r| r.shape.phase == Phase::Request) {
        let _ = writeln!(out, "{}: {}.\n", label(&row.shape), side(row, row.hanzo.as_ref()));
    }
    if let Some(o) = &run.overhead {
        let sizes: Vec<String> = o.by_size.iter().map(|(n, s)| format!("{n}: {:.2} ms", 1e3 * s)).collect();
        let _ =
            write!(out, "A request beyond its prompt's computation, by prompt length: {}.", sizes.join(", "));
        if let (Some(fixed), Some(slope)) = (o.fixed_s, o.per_token_s) {
            let _ = write!(
                out,
                " Fixed part by the size sweep: {:.2} ms, and {:.2} µs a token.",
                1e3 * fixed,
                1e6 * slope
            );
        }
        out.push_str("\n\n");
    }
    for l in &run.latencies {
        let (s, p50, p95) = (if l.streams == 1 { "" } else { "s" }, 1e3 * l.p50, 1e3 * l.p95);
        let what = match l.phase {
            Phase::Request => {
                format!("To the first token with {} stream{s} at once, prompts of {}", l.streams, l.tokens)
            }
            _ => format!("Between tokens with {} stream{s}", l.streams),
        };
        let _ = writeln!(
            out,
            "{what} ({} samples): p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {:.1} ms, longest {:.1} ms.\n",
            l.n,
            1e3 * l.p99,
            1e3 * l.max
        );
    }
    let gb = |x: Option<u64>| x.map_or_else(|| PENDING.to_owned(), |x| format!("{:.2} GB", x as f64 / 1e9));
    if run.peak_bytes != (None, None) {
        let _ = writeln!(
            out,
            "Peak resident memory: hanzo {}, peer {}.",
            gb(run.peak_bytes.0),
            gb(run.peak_bytes.1)
        );
    }
}
