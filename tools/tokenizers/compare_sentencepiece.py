"""Trains small SentencePiece models, unigram and BPE, and compares ids on random Unicode text.

    python compare_sentencepiece.py target/release/examples/tokenize TRAINING_TEXT [TEXTS]

The unigram sums are in double precision here, as in the `tokenizers` package, and in single precision in the reference: a
few texts in ten thousand come out differently where two ways have the same sum.

Needs the `sentencepiece` and `gguf` packages.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

from random_text import random_texts

VARIANTS = {
    "unigram, NFKC": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
    "unigram, folded case": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf"),
    "unigram, spaces kept": dict(
        model_type="unigram", normalization_rule_name="identity", remove_extra_whitespaces=False
    ),
    "BPE, byte fallback": dict(
        model_type="bpe", normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False
    ),
    "BPE, unknown token": dict(
        model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False
    ),
    "BPE, no prefix": dict(
        model_type="bpe", normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False,
        add_dummy_prefix=False, split_by_whitespace=False, allow_whitespace_only_pieces=True,
    ),
}


def write_gguf(model_file, out):
    model = pb.ModelProto()
    model.ParseFromString(Path(model_file).read_bytes())
    unigram = model.trainer_spec.model_type == 1
    writer = gguf.GGUFWriter(out, "t5" if unigram else "llama")
    writer.add_tokenizer_model("t5" if unigram else "llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([p.piece for p in model.pieces])
    writer.add_token_scores([p.score for p in model.pieces])
    writer.add_token_types([p.type for p in model.pieces])
    writer.add_unk_token_id(model.trainer_spec.unk_id)
    writer.add_bos_token_id(model.trainer_spec.bos_id)
    writer.add_eos_token_id(model.trainer_spec.eos_id)
    writer.add_add_space_prefix(model.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(model.normalizer_spec.remove_extra_whitespaces)
    if model.normalizer_spec.precompiled_charsmap:
        writer.add_precompiled_charsmap(model.normalizer_spec.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    tokenize, training = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    words = [w for t in random_texts(3000, seed=77) for w in t.splitlines()]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text")
        lines = Path(training).read_text(encoding="utf8").splitlines()[:15000]
        text.write_text("\n".join(lines + words), encoding="utf8")
        for name, options in VARIANTS.items():
            spm.SentencePieceTrainer.train(
                input=str(text), model_prefix=f"{folder}/m", vocab_size=4000, character_coverage=0.98,
                hard_vocab_limit=False, minloglevel=2, num_threads=1, **options,
            )
            write_gguf(f"{folder}/m.model", f"{folder}/m.gguf")
            reference = spm.SentencePieceProcessor(model_file=f"{folder}/m.model")
            # A NUL ends the reference's strings, and tab-like controls are its own separators in training only.
            texts = [t.replace("\0", "") for t in random_texts(n, seed=5)]
            run = subprocess.run([tokenize, f"{folder}/m.gguf"], input=json.dumps(texts), capture_output=True, text=True)
            if run.returncode:
                print(name, run.stderr)
                failed = True
                continue
            got = json.loads(run.stdout)
            want = reference.encode(texts)
            wrong = [(t, a, b) for t, a, b in zip(texts, got, want) if a != b]
            print(f"{name:24} {len(texts) - len(wrong)} of {len(texts)} equal")
            for t, a, b in wrong[:3]:
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                print(f"   {t!a:.200}\n     ours   {a[at:at + 5]} {reference.id_to_piece(a[max(at-1,0):at + 5])!a}"
                      f"\n     theirs {b[at:at + 5]} {reference.id_to_piece(b[max(at-1,0):at + 5])!a}")
            failed |= len(wrong) > len(texts) // 500
    sys.exit(failed)


if __name__ == "__main__":
    main()
