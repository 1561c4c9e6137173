#!/usr/bin/env python3
"""ggml's quantizer by way of libllama, where llama.cpp's own `llama-quantize` is not built: for `quant_table.sh --llama-quantize`.

    LLAMA_LIB=…/libllama.so llama_quantize.py [--imatrix FILE] [--dry-run] INPUT OUTPUT TYPE

Calls `llama_model_quantize` of the public API (the parameters as b11434 has them, whose defaults are checked before use) as that tool does: all
defaults, and the importance of a column the sum of squares over the count. Needs the packages `gguf` and `numpy`.
"""

import argparse
import ctypes
import os
import sys

TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14,
    "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21, "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25,
    "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38, "Q1_0": 40, "Q2_0": 41,
}
# GGML_TYPE_COUNT stands for "not given" in the type fields of the defaults; it moves with versions.


class Importance(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Params(ctypes.Structure):
    _fields_ = [
        ("nthread", ctypes.c_int32), ("ftype", ctypes.c_int), ("output_tensor_type", ctypes.c_int), ("token_embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool), ("quantize_output_tensor", ctypes.c_bool), ("only_copy", ctypes.c_bool), ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool), ("dry_run", ctypes.c_bool), ("imatrix", ctypes.POINTER(Importance)), ("kv_overrides", ctypes.c_void_p),
        ("tt_overrides", ctypes.c_void_p), ("prune_layers", ctypes.c_void_p), ("max_buf_size", ctypes.c_size_t),
    ]


def importance(path):
    """The importance of each tensor, and what keeps its memory."""
    import numpy as np
    from gguf import GGUFReader

    tensors = {t.name: t.data for t in GGUFReader(path).tensors}
    entries, keep = [], []
    for name, sums in tensors.items():
        if not name.endswith(".in_sum2"):
            continue
        name = name.removesuffix(".in_sum2")
        counts = np.asarray(tensors[name + ".counts"], np.float32).reshape(-1, 1)
        values = np.ascontiguousarray(np.asarray(sums, np.float32).reshape(len(counts), -1) / counts, np.float32).reshape(-1)
        keep.append(values)
        entries.append(Importance(name.encode(), values.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), values.size))
    return (Importance * (len(entries) + 1))(*entries, Importance(None, None, 0)), keep


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--imatrix")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("type")
    args = parser.parse_args()
    if args.type not in TYPES:
        raise SystemExit(f"invalid quantization type {args.type}")
    lib = ctypes.CDLL(os.environ.get("LLAMA_LIB", "libllama.so"))
    lib.llama_model_quantize_default_params.restype = Params
    lib.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
    lib.llama_model_quantize.restype = ctypes.c_uint32
    params = lib.llama_model_quantize_default_params()
    if not (params.quantize_output_tensor and not params.allow_requantize and not params.pure and not params.imatrix and params.max_buf_size == 8 << 30
            and params.output_tensor_type == params.token_embedding_type > 41):
        raise SystemExit("the library's parameters are not those of b11434")
    params.ftype, params.dry_run = TYPES[args.type], args.dry_run
    if args.imatrix:
        params.imatrix, keep = importance(args.imatrix)
    sys.stdout.flush()
    status = lib.llama_model_quantize(args.input.encode(), args.output.encode(), ctypes.byref(params))
    raise SystemExit(1 if status else 0)


if __name__ == "__main__":
    main()
