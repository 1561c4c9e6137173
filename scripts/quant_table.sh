#!/usr/bin/env bash
# Makes the quantizer table: every type of `hanzo quantize` and, where a llama-quantize is given, ggml's of the same name, on one model
# and text. Writes docs/quantizers.json (what was measured) and docs/quantizers.md (made from it).
#
#   scripts/quant_table.sh MODEL-F16.gguf TEXT [--chunks N] [--types "Q8_0 Q4_K_M ..."] [--imatrix FILE]
#                          [--llama-quantize PATH] [--hanzo PATH] [--note TEXT] [--out docs/quantizers]
#   scripts/quant_table.sh --render docs/quantizers      the page from what was measured before
#
# The base of all divergences is MODEL itself, run by hanzo. Types that are there already are kept, so an interrupted run goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/quant_table.py "$@"
