#!/usr/bin/env bash
# Takes the whole CPU board: synthetic models of Qwen3 shapes and the real ones, against llama.cpp, most important first.
#
#   scripts/board.sh --models DIR --llama-dir DIR [options]
#
#   --models DIR        where the real GGUF files lie (scripts/fetch_models.py fetches them) and the synthetic ones are made
#   --llama-dir DIR     llama.cpp's build folder (bin/llama-bench, bin/llama-batched-bench, CMakeCache.txt)
#   --budget MINUTES    nothing new is started after so long (default 33); what was left out is said
#   --hanzo-bench P     default: target/release/hanzo-bench
#   --speculation P     default: target/release/examples/speculation
#   --threads N         of both engines (default: all cores)
#   --out DIR           where run folders go (default: bench-runs)
#   --date D            day in the folders' names; give it again to resume the next day
#   --formats LIST      in place of the board: the 0.6B shape in each of these types ("all": every type that both engines have), prefill of
#                       512 and decode of 64, three repetitions; a file is made for each and removed again
#   --quick             one repetition of short shapes on the smallest model: does everything work?
#   --allow-busy, --busy-cpu PERCENT, --wait S, --peer-version V   as scripts/dossier.sh has them
#
# Run again it resumes: finished turns are files and are not taken again. Exit status 0: complete, 3: something was left out.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
models= llama_dir= budget=33 hanzo=$here/target/release/hanzo-bench speculation=$here/target/release/examples/speculation
threads=$(nproc) out=$here/bench-runs date=$(date +%F) quick=false formats= pass=()
die() { echo "board: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --quick) quick=true; shift; continue ;;
    --allow-busy) pass+=("$1"); shift; continue ;;
  esac
  [ $# -ge 2 ] || die "$1 needs a value (see --help)"
  case $1 in
    --models) models=$2 ;; --llama-dir) llama_dir=$2 ;; --budget) budget=$2 ;; --hanzo-bench) hanzo=$2 ;;
    --formats) formats=$2 ;; --speculation) speculation=$2 ;; --threads) threads=$2 ;; --out) out=$2 ;; --date) date=$2 ;;
    --busy-cpu | --wait | --peer-version) pass+=("$1" "$2") ;;
    *) die "unknown argument $1 (see --help)" ;;
  esac
  shift 2
done
[ -d "$models" ] || die "--models ${models:-(not given)} is no folder"
llama=$llama_dir/bin/llama-bench
[ -x "$llama" ] || die "$llama is no program: --llama-dir is llama.cpp's build folder"
[ -x "$hanzo" ] || die "$hanzo is no program: cargo build --release -p hanzo-bench"
case $budget,$threads in *[!0-9,]*) die "--budget and --threads are numbers" ;; esac
export LD_LIBRARY_PATH=$llama_dir/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

small_q4=$models/synthetic-qwen3-0.6b-q4_k_m.gguf small_q8=$models/synthetic-qwen3-0.6b-q8_0.gguf
medium_q4=$models/synthetic-qwen3-1.7b-q4_k_m.gguf medium_q8=$models/synthetic-qwen3-1.7b-q8_0.gguf
smollm=$models/SmolLM2-135M-Instruct-Q4_1.gguf gemma=$models/gemma-3-270m-Q4_K_M.gguf
coder=$models/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf

# Made before the clock starts. Their values are random, their speed is that of real weights.
synthesize() { # shape type file
  if ! $quick && [ ! -s "$3" ]; then
    echo "making $(basename "$3")" >&2
    "$hanzo" synth --shape "$1" --type "$2" "$3.new" && mv "$3.new" "$3"
  fi
}
if [ -z "$formats" ]; then
  synthesize qwen3-1.7b q4_k_m "$medium_q4"
  synthesize qwen3-0.6b q4_k_m "$small_q4"
  synthesize qwen3-0.6b q8_0 "$small_q8"
  synthesize qwen3-1.7b q8_0 "$medium_q8"
fi

deadline=$(($(date +%s) + 60 * budget))
left_out=()
take() { # tag file, then arguments of dossier.sh
  local tag=$1 file=$2 status=0
  shift 2
  if [ ! -f "$file" ]; then
    left_out+=("$tag $*: $(basename "$file") is not there")
    return 0
  fi
  "$here/scripts/dossier.sh" --backend cpu --hanzo-bench "$hanzo" --llama-bench "$llama" --llama-dir "$llama_dir" --model "$file" --model-tag "$tag" \
    --threads "$threads" --out "$out" --date "$date" --deadline "$deadline" "${pass[@]}" "$@" || status=$?
  case $status in
    0) ;;
    3) left_out+=("$tag $*: out of time") ;;
    4) left_out+=("$tag $*: the machine was not quiet") ;;
    *) left_out+=("$tag $*: failed ($status)") ;;
  esac
}

# How often: 7 repetitions in 2 turns; where one repetition takes minutes, 3 in 1 turn. The board gives the number with every figure.
main=(-p "512,500" -n 128 -r 7 --rounds 2)
batch=(-p 0 -n 32 -b "4,8" -r 7 --rounds 2)
long=(-p 2048 -n 0 -r 3 --rounds 1)
deep=(-p 0 -n 32 -d 4096 -r 3 --rounds 1)
if [ "$formats" = all ]; then
  formats="iq4_xs iq4_nl iq3_s iq3_xxs iq2_s iq2_xs iq2_xxs iq1_m iq1_s tq2_0 tq1_0 q2_k q3_k q4_k q5_k q6_k q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 f16 bf16"
fi
if [ -n "$formats" ]; then
  for type in $formats; do
    file=$models/synthetic-qwen3-0.6b-$type.gguf kept=false
    [ -s "$file" ] && kept=true
    if [ "$(date +%s)" -lt "$deadline" ]; then
      synthesize qwen3-0.6b "$type" "$file"
    fi
    take "qwen3-0.6b-$type" "$file" -p 512 -n 64 -r 3 --rounds 1
    $kept || rm -f "$file"
  done
elif $quick; then
  take smollm2-135m-q4_1 "$smollm" -p "64,50" -n 8 -r 2 --rounds 2 --load 1 --requests 32,64,128
  take smollm2-135m-q4_1 "$smollm" -p 0 -n 8 -b "4,8" -r 1 --rounds 1
  take smollm2-135m-q4_1 "$smollm" -p 0 -n 8 -d 64 -r 1 --rounds 1
else
  take qwen3-1.7b-q4_k_m "$medium_q4" "${main[@]}"
  take qwen3-0.6b-q4_k_m "$small_q4" "${main[@]}"
  take qwen2.5-coder-0.5b-q4_k_m "$coder" "${main[@]}"
  take gemma-3-270m-q4_k_m "$gemma" "${main[@]}"
  take smollm2-135m-q4_1 "$smollm" "${main[@]}"
  take qwen3-0.6b-q8_0 "$small_q8" "${main[@]}"
  take qwen3-1.7b-q8_0 "$medium_q8" "${main[@]}"
  take qwen3-0.6b-q4_k_m "$small_q4" "${batch[@]}"
  take qwen3-1.7b-q4_k_m "$medium_q4" "${batch[@]}"
  if [ -x "$speculation" ]; then
    take qwen2.5-coder-0.5b-q4_k_m "$coder" -p 0 -n 0 --speculation "$speculation"
  else
    left_out+=("speculation: $speculation is no program: cargo build --release -p hanzo-engine --example speculation")
  fi
  take qwen3-0.6b-q4_k_m "$small_q4" "${long[@]}" --load 3
  take qwen3-0.6b-q4_k_m "$small_q4" "${deep[@]}"
  take qwen3-1.7b-q4_k_m "$medium_q4" "${long[@]}"
  take qwen3-1.7b-q4_k_m "$medium_q4" "${deep[@]}"
  take gemma-3-270m-q4_k_m "$gemma" "${batch[@]}"
  take smollm2-135m-q4_1 "$smollm" "${batch[@]}"
  take qwen2.5-coder-0.5b-q4_k_m "$coder" "${batch[@]}"
  take qwen3-0.6b-q4_k_m "$small_q4" -p 0 -n 0 --requests 256,512,1024,2048
  take qwen3-0.6b-q8_0 "$small_q8" "${batch[@]}"
  take qwen3-1.7b-q8_0 "$medium_q8" "${batch[@]}"
fi

"$hanzo" stats "$out/$date-"*/ || true
if [ ${#left_out[@]} -gt 0 ]; then
  printf 'left out: %s\n' "${left_out[@]}" >&2
  exit 3
fi
