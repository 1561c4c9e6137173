#!/usr/bin/env bash
# Builds papers/hanzo-engine/hanzo-engine.pdf from committed samples alone: first the results-*.tex, then LaTeX.
#
#   scripts/assemble_paper.sh [options]
#
#   --hanzo-bench P   default: target/release/hanzo-bench
#   --runs DIR        run folders (default: bench-runs; without any, the paper reads "run pending")
#   --headline TAG    the run that the text speaks of (default: qwen3-1.7b-q4_k_m if it is there)
#   --tex-only        stop before LaTeX
#
# Needs latexmk and a TeX Live with its recommended and extra packages and Latin Modern (Debian: latexmk texlive-latex-extra
# texlive-fonts-recommended lmodern). The PDF and what was computed are not committed.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
hanzo=$here/target/release/hanzo-bench runs=$here/bench-runs headline=qwen3-1.7b-q4_k_m tex_only=false
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --tex-only) tex_only=true; shift; continue ;;
  esac
  [ $# -ge 2 ] || { echo "assemble_paper: $1 needs a value (see --help)" >&2; exit 2; }
  case $1 in
    --hanzo-bench) hanzo=$2 ;; --runs) runs=$2 ;; --headline) headline=$2 ;;
    *) echo "assemble_paper: unknown argument $1 (see --help)" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$hanzo" ] || { echo "assemble_paper: $hanzo is no program: cargo build --release -p hanzo-bench" >&2; exit 2; }

paper=$here/papers/hanzo-engine
all=()
for run in "$runs"/*/; do
  [ -f "$run/manifest.json" ] || continue
  # The first run is the one that the text speaks of.
  case $run in *-"$headline"/) all=("$run" "${all[@]}") ;; *) all+=("$run") ;; esac
done
[ ${#all[@]} -gt 0 ] || echo "assemble_paper: no run under $runs: every figure will read \"run pending\"" >&2
"$hanzo" stats "${all[@]}" --tex "$paper"
$tex_only || (cd "$paper" && latexmk -g -pdf -interaction=nonstopmode -halt-on-error hanzo-engine.tex)
