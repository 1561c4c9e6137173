#!/usr/bin/env python3
"""Samples of llama.cpp through llama-cpp-python, for machines that have no llama-bench.

Same protocol and same form of output as `hanzo-bench --json`: prompts of fixed lengths computed in steps of at most 512
tokens, then tokens decoded one by one from a given depth, timed by the wall clock around the calls into libllama; the
first repetition of a shape warms up and is kept in front. No sampler runs, as in llama-bench.
"""

import argparse
import json
import os
import sys
import time


def lengths(text):
    return [int(n) for n in text.split(",") if int(n) > 0]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--model", required=True)
    ap.add_argument("-p", "--prompt", type=lengths, default=[512])
    ap.add_argument("-n", "--generate", type=int, default=128)
    ap.add_argument("-d", "--depth", type=int, default=0)
    ap.add_argument("-r", "--repeat", type=int, default=7)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--gpu", action="store_true", help="put all layers on the accelerator")
    args = ap.parse_args()

    import llama_cpp

    longest = max([*args.prompt, args.depth + args.generate, 1])
    llm = llama_cpp.Llama(
        model_path=args.model,
        n_ctx=longest + 16,
        n_batch=2048,
        n_ubatch=512,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        n_gpu_layers=-1 if args.gpu else 0,
        flash_attn=True,
        logits_all=False,
        verbose=False,
    )
    vocab = llm.n_vocab()

    def tokens(start, n):
        return [i * 7919 % vocab for i in range(start, start + n)]

    def prompt(n):
        llm.reset()
        if n:
            llm.eval(tokens(0, n))

    def timed(n, run):
        start = time.perf_counter()
        run()
        return [time.perf_counter() - start, n]

    cells = []
    for n in args.prompt:
        samples = [timed(n, lambda: prompt(n)) for _ in range(args.repeat + 1)]
        cells.append({"phase": "prefill", "n": n, "batch": 1, "depth": 0, "samples": samples})
    if args.generate:

        def decode():
            for token in tokens(args.depth, args.generate):
                llm.eval([token])

        samples = []
        for _ in range(args.repeat + 1):
            prompt(args.depth)
            samples.append(timed(args.generate, decode))
        cells.append(
            {"phase": "decode", "n": args.generate, "batch": 1, "depth": args.depth, "samples": samples}
        )
    manifest = {
        "engine": f"llama.cpp (llama-cpp-python {llama_cpp.__version__})",
        "system": llama_cpp.llama_print_system_info().decode(),
        "model": os.path.basename(args.model),
        "sampler": "none",
        "threads": args.threads,
        "flash_attn": True,
    }
    json.dump({"manifest": manifest, "cells": cells}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
