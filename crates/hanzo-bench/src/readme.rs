//! Measured parts of pages: what stands between two markers, made from committed runs. The README has one, with charts; other pages may
//! have several, each naming the folder that its runs lie in.

use std::path::{Path, PathBuf};

use crate::board::Board;
use crate::error::BenchError;
use crate::{render, run};

const BEGIN: &str = "<!-- board: made by hanzo-bench stats --readme; do not edit -->";
const END: &str = "<!-- end of board -->";
/// How a marked part of another page begins: with the folder of its runs, from the page's own.
const PART: (&str, &str) = ("<!-- board of ", ": made by hanzo-bench stats --page; do not edit -->");
/// Where the chart lies, from the README.
pub const CHART: &str = "docs/board.svg";
/// Committed runs, from the README's folder.
pub const RUNS: &str = "bench-runs";

/// The README's text with its measured part made anew.
///
/// # Errors
/// [`BenchError::Form`] where the markers are not there, once each and in order.
pub fn with_board(path: &Path, text: &str, board: &Board) -> Result<String, BenchError> {
    let form = || BenchError::form(path, format!("needs one line `{BEGIN}` and one line `{END}` after it"));
    let (before, rest) = text.split_once(BEGIN).ok_or_else(form)?;
    let (old, after) = rest.split_once(END).ok_or_else(form)?;
    if old.contains(BEGIN) || after.contains(BEGIN) || after.contains(END) {
        return Err(form());
    }
    let body = render::markdown::summary(board, Some(CHART));
    Ok(format!("{before}{BEGIN}\n{}\n\n{END}{after}", body.trim_end()))
}

/// A page's text with each of its measured parts made anew from the folder that it names.
///
/// # Errors
/// [`BenchError::Form`] where the page has no such part, one without an end, or one whose folder has no runs; what is wrong with a run.
pub fn with_parts(path: &Path, text: &str) -> Result<String, BenchError> {
    let form = |found: String| {
        BenchError::form(path, format!("needs parts from `{}FOLDER{}` to `{END}`: {found}", PART.0, PART.1))
    };
    let beside = path.parent().unwrap_or(Path::new(""));
    let (before, parts) = text.split_once(PART.0).ok_or_else(|| form("it has none".into()))?;
    let mut out = before.to_owned();
    for part in parts.split(PART.0) {
        let (folder, rest) =
            part.split_once(PART.1).ok_or_else(|| form("a beginning is not whole".into()))?;
        let (_, after) = rest.split_once(END).ok_or_else(|| form(format!("{folder}'s has no end")))?;
        let runs = runs_in(&beside.join(folder))?;
        if runs.is_empty() {
            return Err(form(format!("{folder} has no runs")));
        }
        let body = render::markdown::summary(&Board::of(&runs), None);
        out += &format!("{}{folder}{}\n{}\n\n{END}{after}", PART.0, PART.1, body.trim_end());
    }
    Ok(out)
}

/// The committed runs beside a README, in the order of their names; none where there is no folder.
///
/// # Errors
/// What is wrong with a run.
pub fn committed_runs(root: &Path) -> Result<Vec<run::Run>, BenchError> {
    runs_in(&root.join(RUNS))
}

fn runs_in(folder: &Path) -> Result<Vec<run::Run>, BenchError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).map_err(BenchError::read(folder))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(BenchError::read(folder))?;
    paths.retain(|p| p.is_dir());
    paths.sort();
    paths.iter().map(|p| run::read(p)).collect()
}
