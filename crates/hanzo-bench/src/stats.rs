//! The `stats` command: from run folders to the board in all its forms.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::board::Board;
use crate::error::BenchError;
use crate::{readme, render, run};

/// Compute the board from run folders
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo-bench stats bench-runs/*                       the board as Markdown
  hanzo-bench stats bench-runs/* --json
  hanzo-bench stats bench-runs/* --charts docs         board.svg and bandwidth.svg
  hanzo-bench stats bench-runs/* --tex papers/hanzo-engine
  hanzo-bench stats --readme README.md                 the README's part and its charts, from bench-runs/ beside it
  hanzo-bench stats --page docs/board-zen-3.md         the marked parts of a page, from the folders that they name

The first run of a backend is the one that the paper's macros speak of.")]
pub struct Args {
    /// Run folders, as scripts/dossier.sh makes them
    #[arg(value_name = "RUN", required_unless_present_any = ["readme", "page", "tex"])]
    runs: Vec<PathBuf>,
    /// Print JSON in place of Markdown
    #[arg(long)]
    json: bool,
    /// Write board.svg and bandwidth.svg into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Write results-data.tex, results-board.tex and results-spec.tex into this folder
    #[arg(long, value_name = "DIR")]
    tex: Option<PathBuf>,
    /// Make the part between the markers of this README anew, and docs/board.svg and docs/bandwidth.svg beside it
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// Make the marked parts of this page anew, each from the runs of the folder that its marker names; may be given several times
    #[arg(long, value_name = "FILE")]
    page: Vec<PathBuf>,
}

/// Writes the files that were asked for, and gives the text for standard output.
///
/// # Errors
/// What is wrong with a run, or a file that cannot be written.
pub fn run(args: &Args) -> Result<String, BenchError> {
    let mut runs = args.runs.iter().map(|p| run::read(p)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(path), true) = (&args.readme, runs.is_empty()) {
        runs = readme::committed_runs(root_of(path))?;
    }
    let board = Board::of(&runs);
    let mut done = String::new();
    if let Some(path) = &args.readme {
        let text = std::fs::read_to_string(path).map_err(BenchError::read(path))?;
        write(path, &readme::with_board(path, &text, &board)?, &mut done)?;
        charts(&root_of(path).join("docs"), &board, &mut done)?;
    }
    for path in &args.page {
        let text = std::fs::read_to_string(path).map_err(BenchError::read(path))?;
        write(path, &readme::with_parts(path, &text)?, &mut done)?;
    }
    if let Some(folder) = &args.charts {
        charts(folder, &board, &mut done)?;
    }
    if let Some(folder) = &args.tex {
        write(&folder.join("results-data.tex"), &render::tex::data(&board), &mut done)?;
        write(&folder.join("results-board.tex"), &render::tex::board(&board), &mut done)?;
        write(&folder.join("results-spec.tex"), &render::tex::speculation(&board), &mut done)?;
    }
    if args.json {
        return Ok(format!("{:#}\n", serde_json::json!(board)));
    }
    Ok(if done.is_empty() { render::markdown::board(&board) } else { done })
}

/// The folder that a README lies in.
fn root_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn charts(folder: &Path, board: &Board, done: &mut String) -> Result<(), BenchError> {
    let charts =
        [("board.svg", render::chart::ratios(board)), ("bandwidth.svg", render::chart::bandwidth(board))];
    for (name, svg) in charts {
        match svg {
            Some(svg) => write(&folder.join(name), &svg, done)?,
            None => _ = writeln!(done, "{name}: {}, nothing to draw", render::PENDING),
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, done: &mut String) -> Result<(), BenchError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(BenchError::write(folder))?;
    }
    std::fs::write(path, text).map_err(BenchError::write(path))?;
    let _ = writeln!(done, "wrote {}", path.display());
    Ok(())
}
