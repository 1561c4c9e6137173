//! The README's measured part: what stands between two markers, made from committed runs.

use std::path::{Path, PathBuf};

use crate::board::Board;
use crate::error::BenchError;
use crate::{render, run};

const BEGIN: &str = "<!-- board: made by hanzo-bench stats --readme; do not edit -->";
const END: &str = "<!-- end of board -->";
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
    let body = render::markdown::summary(board, CHART);
    Ok(format!("{before}{BEGIN}\n{}\n\n{END}{after}", body.trim_end()))
}

/// The committed runs beside a README, in the order of their names; none where there is no folder.
///
/// # Errors
/// What is wrong with a run.
pub fn committed_runs(root: &Path) -> Result<Vec<run::Run>, BenchError> {
    let folder = root.join(RUNS);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).map_err(BenchError::read(&folder))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(BenchError::read(&folder))?;
    paths.retain(|p| p.is_dir());
    paths.sort();
    paths.iter().map(|p| run::read(p)).collect()
}
