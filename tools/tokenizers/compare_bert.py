"""Compares a BERT vocabulary in GGUF with the WordPiece model of the `tokenizers` package on random Unicode text.

    python compare_bert.py target/release/examples/tokenize VOCAB.gguf [TEXTS]
"""

import json
import subprocess
import sys

from gguf import GGUFReader
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from random_text import random_texts


def main():
    tokenize, path = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    fields = GGUFReader(path).fields
    types = fields["tokenizer.ggml.token_type"].contents()
    vocab = {}
    for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents()):
        if types[i] != 1:
            spelled = token
        elif token.startswith("\u2581"):
            spelled = token[1:]
        else:
            spelled = "##" + token
        vocab[spelled] = i
    reference = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    reference.normalizer = BertNormalizer(lowercase=True)
    reference.pre_tokenizer = BertPreTokenizer()
    texts = random_texts(n, seed=6)
    run = subprocess.run([tokenize, path], input=json.dumps(texts), capture_output=True, text=True, check=True)
    got = json.loads(run.stdout)
    want = [reference.encode(t).ids for t in texts]
    wrong = [(t, a, b) for t, a, b in zip(texts, got, want) if a != b]
    print(f"{len(texts) - len(wrong)} of {len(texts)} equal")
    for text, a, b in wrong[:8]:
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        show = [[reference.id_to_token(i) for i in ids[max(at - 1, 0):at + 3]] for ids in (a, b)]
        print(f"   {text!a:.300}\n     ours   {show[0]!a}\n     theirs {show[1]!a}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
