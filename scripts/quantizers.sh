#!/usr/bin/env bash
# Makes docs/quantizers-tiny.{json,md} and docs/quantizers-smollm2.{json,md}: bases, importance, quality of every type, speeds.
#
#   scripts/quantizers.sh --models DIR --scratch DIR [options]
#
#   --models DIR          where SmolLM2-135M-Instruct-Q4_1.gguf lies (scripts/fetch_models.py fetches it)
#   --scratch DIR         where bases are made and kept between calls (3 GB)
#   --only tiny|smollm2   one of the two
#   --text FILE           what SmolLM2 is measured on (default: the Constitution of the United States, of Debian's miscfiles, unpacked)
#   --imatrix-text FILE   what its importance is measured on (default: /usr/share/common-licenses/GPL-3)
#   --chunks N            windows of SmolLM2's text (default 8)
#   --llama-quantize P    the peer's llama-quantize (or scripts/llama_quantize.py); without it, its half reads "run pending"
#   --peer-version V      llama.cpp's build, such as b11434
#   --types "A B …"       these alone, in place of all
#   --speeds N            the speeds alone, until each type has N turns: wants a quiet machine
#   --hanzo P             default: target/release/hanzo
#   --python P            a Python with the packages gguf and numpy (default: python3)
#
# What is on disk is kept: an interrupted call goes on. Delete a table's .json to measure it anew, as after a change of the encoders.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
models= scratch= only= text= imatrix_text=/usr/share/common-licenses/GPL-3 chunks=8 peer=() types=() speeds= hanzo=$here/target/release/hanzo python=python3
die() { echo "quantizers: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in -h | --help) sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
  [ $# -ge 2 ] || die "$1 needs a value (see --help)"
  case $1 in
    --models) models=$2 ;; --scratch) scratch=$2 ;; --only) only=$2 ;; --text) text=$2 ;; --imatrix-text) imatrix_text=$2 ;; --chunks) chunks=$2 ;;
    --llama-quantize | --peer-version) peer+=("$1" "$2") ;;
    --types) types=(--types "$2") ;;
    --speeds) speeds=$2 ;; --hanzo) hanzo=$2 ;; --python) python=$2 ;;
    *) die "unknown argument $1 (see --help)" ;;
  esac
  shift 2
done
[ -z "$text" ] || text=$(realpath "$text")
[ -n "$scratch" ] || die "--scratch DIR is needed"
[ -x "$hanzo" ] || die "--hanzo $hanzo is no program"
case $only in '' | tiny | smollm2) ;; *) die "--only $only: tiny or smollm2" ;; esac
mkdir -p "$scratch"
scratch=$(cd "$scratch" && pwd)

make_base() { # from, to: decoded to F32
  [ -s "$2" ] || "$hanzo" quantize --allow-requantize "$1" "$2.new" F32 && { [ -s "$2" ] || mv "$2.new" "$2"; }
}
rewrite() { # base, to, seed: the same function in other weights
  [ -s "$2" ] || { cp "$1" "$2.new" && "$python" "$here/scripts/off_lattice.py" "$2.new" "$3" && mv "$2.new" "$2"; }
}
importance() { # model, text, to, windows
  [ -s "$3" ] || "$hanzo" imatrix "$1" "$2" -o "$3" --chunks "$4"
}
table() { # stem, model, importance, then what is measured
  local stem=$1 model=$2 imatrix=$3
  shift 3
  [ -z "$speeds" ] || set -- --speeds "$speeds"
  "$here/scripts/quant_table.sh" "$model" "$@" --imatrix "$imatrix" --hanzo "$hanzo" --scratch "$scratch" --out "$here/docs/$stem" "${peer[@]}" "${types[@]}"
}

if [ "$only" != smollm2 ]; then
  base=$scratch/hanzo-tiny-F32.gguf
  make_base "$here/crates/hanzo-cli/assets/hanzo-tiny.gguf" "$base"
  (cd "$here/tools/tiny-model" && { [ -s "$scratch/stories-7.txt" ] || python3 sample_text.py 7 400 >"$scratch/stories-7.txt"; } \
    && { [ -s "$scratch/stories-8.txt" ] || python3 sample_text.py 8 160 >"$scratch/stories-8.txt"; })
  importance "$base" "$scratch/stories-7.txt" "$scratch/hanzo-tiny-imatrix.gguf" 50
  draws=()
  for seed in 1 2 3; do
    rewrite "$base" "$scratch/hanzo-tiny-$seed.gguf" "$seed"
    importance "$scratch/hanzo-tiny-$seed.gguf" "$scratch/stories-7.txt" "$scratch/hanzo-tiny-$seed-imatrix.gguf" 50
    draws+=(--draw "$scratch/hanzo-tiny-$seed.gguf:$scratch/hanzo-tiny-$seed-imatrix.gguf")
  done
  table quantizers-tiny "$base" "$scratch/hanzo-tiny-imatrix.gguf" "$scratch/stories-8.txt" --chunks 12 "${draws[@]}" \
    --note "The model that the hanzo binary carries (2.9 million weights; all rows are multiples of 256, so that every type appears as itself), decoded from its Q8_0: its weights are those of training to within 1/254 of the largest of 32. The text is fresh stories of its training grammar."
fi
if [ "$only" != tiny ]; then
  source=$models/SmolLM2-135M-Instruct-Q4_1.gguf
  [ -f "$source" ] || die "$source is not there: --models DIR"
  if [ -z "$text" ]; then
    text=$scratch/us-constitution.txt
    [ -s "$text" ] || zcat /usr/share/state/us-constitution.gz >"$text" || die "no text: --text FILE, or install Debian's miscfiles"
  fi
  make_base "$source" "$scratch/SmolLM2-135M-Instruct-F32.gguf"
  base=$scratch/SmolLM2-135M-Instruct-rewritten-F32.gguf
  rewrite "$scratch/SmolLM2-135M-Instruct-F32.gguf" "$base" 1
  importance "$base" "$imatrix_text" "$scratch/SmolLM2-imatrix.gguf" 6
  table quantizers-smollm2 "$base" "$scratch/SmolLM2-imatrix.gguf" "$text" --chunks "$chunks" \
    --note "SmolLM2-135M-Instruct, decoded from Q4_1 (no finer file of it was at hand) and written in other weights that compute the same, so that no encoder finds the lattice of Q4_1 (\`scripts/off_lattice.py\`). Its rows of 576 are no multiple of 256: types with such blocks fall back in most matrices, as \`hanzo quantize\` tells."
fi
