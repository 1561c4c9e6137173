"""Compares our hand-written pre-tokenizers with the regular expressions of the models' own tokenizer files.

    python compare_pieces.py target/release/examples/tokenize [TEXTS]
    python compare_pieces.py --golden crates/hanzo-text/tests/data/pieces.json

The second form writes a few texts with the lengths, in bytes, of their pieces by the expressions: what the test of the
same name reads. It needs the `tokenizers` package, whose regular expressions (Oniguruma) are those that the models were trained with.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from random_text import random_texts

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END
QWEN2 = LLAMA3.replace("{1,3}", "")
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"


def o200k(suffix, digits, tail, u=U, low=L):
    return f"{PREFIX}{u}*{low}+{suffix}|{PREFIX}{u}+{low}*{suffix}|{digits}| ?[^\\s\\p{{L}}\\p{{N}}]+{tail}|{END}"


O200K = o200k(CONTRACTION + "?", r"\p{N}{1,3}", r"[\r\n/]*")
NOT_HAN = r"&&[^\p{Han}]"
KIMI = r"[\p{Han}]+|" + o200k(
    CONTRACTION + "?", r"\p{N}{1,3}", r"[\r\n]*", U[:-1] + NOT_HAN + "]", L[:-1] + NOT_HAN + "]"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + END
)
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
JAIS2_SPACES = "".join(rf"|\s{{{2**k}}}(?!\S)" for k in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"

SOURCE = Path(__file__).parent / "../../crates/hanzo-text/src/tokenizer/pretokenize/deepseek.rs"
RANGES = re.findall(r"\((0x[0-9A-F_]+), (0x[0-9A-F_]+)\)", SOURCE.read_text())
LLM_LETTERS = "".join(f"{chr(int(lo, 16))}-{chr(int(hi, 16))}" for lo, hi in RANGES)

PATTERNS = {
    "gpt-2": [GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + END
    ],
    "ufakzeka": [QWEN2.removeprefix(CONTRACTION + "|")],
    "seed-coder": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + END
    ],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "exaone-moe": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "jais-2": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + JAIS2_SPACES
    ],
    "gpt-4o": [O200K],
    "tekken": [o200k("", r"\p{N}", r"[\r\n/]*")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "kimi-k2": [KIMI],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
        o200k(CONTRACTION + "?", r"\p{N}", r"[\r\n/]*"),
    ],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "spark2_5": [
        r"\p{N}{1,3}",
        CJK,
        DEEPSEEK3.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]"),
        r"\p{N}",
    ],
    # The letters are taken from our source, everything else is the model's.
    "deepseek-llm": [
        r"[\r\n]",
        rf"\s?[{LLM_LETTERS}]+",
        r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
        r"\s+$",
        "[一-龥ࠀ-一가-\ud7ff]+",
        r"\p{N}+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "chameleon": [
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        "([\\t\\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        GPT2,
    ],
    "gemma4": [r"[^\n]+|[\n]+"],
}


def splitter(patterns):
    return Sequence([Split(Regex(p), "isolated") for p in patterns])


def write_golden(path):
    texts = [t for t in random_texts(60, seed=3, max_parts=40) if t]
    texts += [" " * 700 + "x", "\n \n  x\r\n\r\n", "1234567890 12.345,678 x1 1x ½²", "AAAbbbCCC'S'll don'T", "()!?\n/\n\n/"]
    lengths = {}
    for name, patterns in PATTERNS.items():
        s = splitter(patterns)
        lengths[name] = [[len(p.encode()) for p, _ in s.pre_tokenize_str(t)] for t in texts]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(v, separators=(',', ':'))}" for name, v in lengths.items())
    Path(path).write_text(f'{{"texts": {json.dumps(texts)},\n"pieces": {{\n{lines}\n}}}}\n', encoding="utf8")


def main():
    if sys.argv[1] == "--golden":
        write_golden(sys.argv[2])
        return
    tokenize = sys.argv[1]
    texts = [t for t in random_texts(int(sys.argv[2]) if len(sys.argv) > 2 else 20000, seed=1) if t]
    failed = False
    for name, patterns in PATTERNS.items():
        s = splitter(patterns)
        run = subprocess.run(
            [tokenize, "--pieces", name], input=json.dumps(texts), capture_output=True, text=True, check=True
        )
        ours = json.loads(run.stdout)
        theirs = [[piece for piece, _ in s.pre_tokenize_str(t)] for t in texts]
        wrong = [(t, a, b) for t, a, b in zip(texts, ours, theirs) if a != b]
        print(f"{name:16} {len(texts) - len(wrong)} of {len(texts)} equal")
        for text, a, b in wrong[:3]:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print(f"   {text!a:.150}\n     ours   {a[at:at + 3]!a}\n     theirs {b[at:at + 3]!a}")
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
