"""Speed of our tokenizer against the `tokenizers` package on the same text and vocabulary, one thread each.

    python bench_hf.py target/release/examples/tokenizer_speed MODEL.gguf tokenizer.json TEXT [REPETITIONS]

Both sides are timed by the processor time of their thread, so that other work on the machine disturbs less; the ratio
is of medians. The counts of tokens must agree.
"""

import json
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402


def main():
    speed, model, path, text_file = sys.argv[1:5]
    repetitions = int(sys.argv[5]) if len(sys.argv) > 5 else 7
    run = subprocess.run([speed, model, text_file, str(repetitions)], capture_output=True, text=True, check=True)
    ours = json.loads(run.stdout)

    loads = []
    for _ in range(3):
        start = time.process_time()
        reference = Tokenizer.from_file(path)
        loads.append(time.process_time() - start)
    with open(text_file, encoding="utf8", newline="") as f:
        text = f.read()
    encodes = []
    for _ in range(repetitions):
        start = time.process_time()
        n = len(reference.encode(text, add_special_tokens=False).ids)
        encodes.append(time.process_time() - start)

    our_load = [a + b + c for a, b, c in zip(ours["open_s"], ours["collect_s"], ours["load_s"])]
    print(f"vocabulary {ours['vocabulary']}, text {ours['bytes']} bytes, tokens {ours['tokens']} (reference {n})")
    for label, a, b in [("load", our_load, loads), ("encode", ours["encode_s"], encodes)]:
        a, b = statistics.median(a), statistics.median(b)
        print(f"{label:8} ours {a:.4f} s   reference {b:.4f} s   ratio {b / a:.1f}")


if __name__ == "__main__":
    main()
