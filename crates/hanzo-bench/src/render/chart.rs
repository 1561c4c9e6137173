//! Charts as SVG: ratios with their intervals, and shares of the read bandwidth.
//!
//! They stand alone: own background, system fonts, both colour schemes by media query, a title and a description for
//! readers who do not see them.

use std::fmt::Write as _;

use super::{label, number};
use crate::board::{Board, Row, RunBoard, Unit};

const WIDTH: f64 = 920.0;
const LEFT: f64 = 20.0;
/// Where the plot begins and ends.
const PLOT: (f64, f64) = (430.0, 800.0);
const ROW: f64 = 24.0;
const HEADING: f64 = 34.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 44.0;

const STYLE: &str = "<style>
  .bg{fill:#fff}.t{fill:#1f2328}.m{fill:#59636e}.g{stroke:#d1d9e0}.one{stroke:#59636e}
  .win{fill:#1a7f5a;stroke:#1a7f5a}.loss{fill:#c0392b;stroke:#c0392b}.parity{fill:#6e7781;stroke:#6e7781}.peer{fill:#b7791f;stroke:#b7791f}
  @media (prefers-color-scheme:dark){
  .bg{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:#30363d}.one{stroke:#9198a1}
  .win{fill:#3fb98a;stroke:#3fb98a}.loss{fill:#f07167;stroke:#f07167}.parity{fill:#9aa4af;stroke:#9aa4af}.peer{fill:#e0a84a;stroke:#e0a84a}}
  text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
  .h{font-size:16px;font-weight:600}.b{font-weight:600}.s{font-size:12px}.e{text-anchor:end}.c{text-anchor:middle}
</style>
";

/// A drawing in the making.
struct Drawing {
    body: String,
    y: f64,
}

fn escape(text: &str) -> String {
    let clean = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(clean).collect()
}

impl Drawing {
    fn new() -> Self {
        Self { body: String::new(), y: TOP }
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escape(text));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str, width: f64) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn bar(&mut self, x: (f64, f64), y: f64, height: f64, class: &str, opacity: f64) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"1.5\" class=\"{class}\" fill-opacity=\"{opacity}\" \
             stroke-width=\"0\"/>",
            x.0.min(x.1),
            (x.1 - x.0).abs()
        );
    }

    /// Vertical lines at ticks behind what is drawn later, with their labels below.
    fn axis(&mut self, ticks: &[(f64, String)], bottom: f64) {
        for (x, name) in ticks {
            self.line((*x, TOP - 12.0), (*x, bottom), "g", 1.0);
            self.text(*x, bottom + 18.0, "m s c", name);
        }
    }

    fn finish(self, title: &str, subtitle: &str, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
             role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">{}</title>\n<desc id=\"desc\">{}</desc>\n{STYLE}\
             <rect class=\"bg\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n\
             <text x=\"{LEFT}\" y=\"32\" class=\"t h\">{}</text>\n<text x=\"{LEFT}\" y=\"54\" class=\"m s\">{}</text>\n{}</svg>\n",
            escape(title),
            escape(subtitle),
            escape(title),
            escape(subtitle),
            self.body
        )
    }
}

fn height(groups: &[(&RunBoard, Vec<&Row>)], row: f64) -> f64 {
    TOP + groups.iter().map(|(_, rows)| HEADING + row * rows.len() as f64).sum::<f64>()
}

/// Groups of a run and those of its rows that `wanted` takes; runs without any are left out.
fn groups(board: &Board, wanted: impl Fn(&Row) -> bool) -> Vec<(&RunBoard, Vec<&Row>)> {
    let of = |run| -> (&RunBoard, Vec<&Row>) {
        let run: &RunBoard = run;
        (run, run.rows.iter().filter(|r| wanted(r)).collect())
    };
    board.runs.iter().map(of).filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Ratios to the peer on a logarithmic axis, with their intervals. `None` where nothing was compared.
pub fn ratios(board: &Board) -> Option<String> {
    let groups = groups(board, |r| r.ratio.is_some());
    if groups.is_empty() {
        return None;
    }
    let rows = || groups.iter().flat_map(|(_, rows)| rows);
    let bounds = |r: &Row| {
        let value = r.ratio.unwrap_or(1.0);
        let (low, high) = r.ratio_interval.unwrap_or((value, value));
        (low.max(value / 4.0).min(value), high.min(value * 4.0).max(value))
    };
    let low = rows().map(|r| bounds(r).0).fold(1.0, f64::min) / 1.15;
    let high = rows().map(|r| bounds(r).1).fold(1.0, f64::max) * 1.15;
    let x = |v: f64| PLOT.0 + (PLOT.1 - PLOT.0) * (v / low).ln() / (high / low).ln();
    let end = height(&groups, ROW);
    let mut d = Drawing::new();
    let marks = [0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0];
    let ticks: Vec<(f64, String)> =
        marks.into_iter().filter(|v| (low..=high).contains(v)).map(|v| (x(v), format!("{v} ×"))).collect();
    d.axis(&ticks, end);
    d.line((x(1.0), TOP - 12.0), (x(1.0), end), "one", 1.5);
    d.text(300.0, TOP + 4.0, "m s e", "hanzo");
    d.text(400.0, TOP + 4.0, "m s e", "peer");
    for (run, rows) in &groups {
        d.y += HEADING;
        d.text(LEFT, d.y - 10.0, "t b", &run.manifest.tag);
        for row in rows {
            let middle = d.y + ROW / 2.0 - 4.0;
            let base = middle + 4.5;
            let unit = if row.unit == Unit::Seconds { " s" } else { "" };
            let mean = |m: &Option<crate::board::Measured>| {
                m.as_ref().map_or_else(String::new, |m| format!("{}{unit}", number(m.mean)))
            };
            d.text(LEFT + 12.0, base, "t", &label(&row.shape));
            d.text(300.0, base, "t e", &mean(&row.hanzo));
            d.text(400.0, base, "m e", &mean(&row.peer));
            let class = match row.verdict {
                Some("WIN") => "win",
                Some("LOSS") => "loss",
                _ => "parity",
            };
            let value = row.ratio.unwrap_or(1.0);
            let (a, b) = bounds(row);
            d.bar((x(1.0), x(value)), middle - 5.0, 10.0, class, 0.28);
            d.line((x(a), middle), (x(b), middle), class, 2.0);
            for end in [a, b] {
                d.line((x(end), middle - 4.0), (x(end), middle + 4.0), class, 1.5);
            }
            let _ = writeln!(
                d.body,
                "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"3.5\" class=\"{class}\"/>",
                x(value)
            );
            d.text(WIDTH - LEFT, base, "t e", &format!("{value:.2} ×"));
            d.y += ROW;
        }
    }
    let subtitle = "Speeds in tokens a second. Ratios, logarithmic, with 95 % intervals; green: faster, red: slower, grey: the interval holds 1.";
    Some(d.finish("How many times as fast as the peer", subtitle, end + BOTTOM))
}

/// Shares of the read bandwidth that decoding reaches. `None` where no roof was measured.
pub fn bandwidth(board: &Board) -> Option<String> {
    let share = |m: &Option<crate::board::Measured>| m.as_ref().and_then(|m| m.read_share);
    let groups = groups(board, |r| share(&r.hanzo).is_some());
    if groups.is_empty() {
        return None;
    }
    const TALL: f64 = 34.0;
    let x = |v: f64| PLOT.0 + (PLOT.1 - PLOT.0) * v.min(1.2) / 1.2;
    let end = height(&groups, TALL);
    let mut d = Drawing::new();
    let ticks: Vec<(f64, String)> =
        [0.0, 0.25, 0.5, 0.75, 1.0].into_iter().map(|v| (x(v), format!("{:.0} %", 100.0 * v))).collect();
    d.axis(&ticks, end);
    d.line((x(1.0), TOP - 12.0), (x(1.0), end), "one", 1.5);
    for (run, rows) in &groups {
        d.y += HEADING;
        d.text(LEFT, d.y - 10.0, "t b", &run.manifest.tag);
        for row in rows {
            d.text(LEFT + 12.0, d.y + 15.0, "t", &label(&row.shape));
            for (i, (m, class, name)) in
                [(&row.hanzo, "win", "hanzo"), (&row.peer, "peer", "peer")].into_iter().enumerate()
            {
                let (Some(m), Some(share)) = (m, share(m)) else { continue };
                let y = d.y + 12.0 * i as f64;
                d.text(PLOT.0 - 10.0, y + 10.0, "m s e", name);
                d.bar((x(0.0), x(share)), y + 1.0, 9.0, class, 0.85);
                let rate = number(m.read_rate.unwrap_or(0.0) / 1e9);
                d.text(x(share) + 6.0, y + 10.0, "t s", &format!("{:.0} %, {rate} GB/s", 100.0 * share));
            }
            d.y += TALL;
        }
    }
    let subtitle = "Bytes of weights and cache that the plan reads, times steps a second, over the best read bandwidth of the run.";
    Some(d.finish("Decode: share of the memory's read bandwidth", subtitle, end + BOTTOM))
}
