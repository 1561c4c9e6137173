"""Compares ids with those of the `tokenizers` package on random Unicode text, with and without special tokens.

    python compare_hf.py target/release/examples/tokenize MODEL.gguf tokenizer.json [TEXTS]

The GGUF file may come from hf_to_gguf.py. Normalization to form C follows the tokenizer.json.
"""

import json
import random
import subprocess
import sys

from tokenizers import Tokenizer

from random_text import random_texts


def ours(tokenize, model, texts, flags):
    run = subprocess.run(
        [tokenize, model, *flags], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def main():
    tokenize, model, path = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 20000
    with open(path, encoding="utf8") as f:
        data = json.load(f)
    flags = ["--nfc"] if "NFC" in json.dumps(data["normalizer"]) else []
    reference = Tokenizer.from_file(path)
    names = [t["content"] for t in data["added_tokens"]]
    special = [t["content"] for t in data["added_tokens"] if t["special"]]
    failed = False
    for label, parse in [("plain text", False), ("special tokens", True)]:
        texts = random_texts(n, seed=2 + parse)
        if parse:
            rng = random.Random(9)
            texts = ["".join(x for part in (t[:9], rng.choice(names), t[9:], rng.choice(names)) for x in part) for t in texts]
        else:
            # The reference always reads special tokens: leave out texts that spell one.
            texts = [t for t in texts if not any(s in t for s in special)]
        got = ours(tokenize, model, texts, flags + ["--parse-special"] * parse)
        want = [reference.encode(t, add_special_tokens=False).ids for t in texts]
        wrong = [(t, a, b) for t, a, b in zip(texts, got, want) if a != b]
        print(f"{label:16} {len(texts) - len(wrong)} of {len(texts)} equal")
        for text, a, b in wrong[:3]:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            pieces = [[reference.id_to_token(i) for i in ids[max(at - 2, 0):at + 4]] for ids in (a, b)]
            print(f"   {text!a:.300}\n     ours   {a[at:at + 4]} {pieces[0]!a}\n     theirs {b[at:at + 4]} {pieces[1]!a}")
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
