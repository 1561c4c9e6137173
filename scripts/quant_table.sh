#!/usr/bin/env bash
# Makes the quantizer table: every type of `hanzo quantize` and, where a llama-quantize is given, ggml's of the same name, on one model
# and text. Writes STEM.json (what was measured) and STEM.md (made from it).
#
#   scripts/quant_table.sh MODEL TEXT [--chunks N] [--ctx N] [--types "Q8_0 Q4_K_M …"] [--imatrix FILE] [--f32-activations | --draw MODEL[:IMATRIX]…]
#                          [--llama-quantize PATH] [--peer-version V] [--hanzo PATH] [--note TEXT] [--out STEM] [--scratch DIR]
#   scripts/quant_table.sh MODEL --speeds N [--types …] [--imatrix FILE] [--hanzo PATH] [--out STEM] [--scratch DIR]
#                                                       prefill and decode of our files, until each type has N turns
#   scripts/quant_table.sh --render STEM                the page, from what was measured before
#
# MODEL is an F32, F16 or BF16 file; all divergences are from it, run by hanzo. STEM is docs/quantizers by default. What is there already is
# kept, so an interrupted run goes on where it stopped. The speeds want a quiet machine: the types take turns, one repetition of each a
# turn, so that a drift meets all of them, and the load average before each turn is kept beside them.
set -euo pipefail
exec python3 "$(dirname "$0")/quant_table.py" "$@"
