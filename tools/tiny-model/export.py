"""Writes a checkpoint as GGUF in the names and keys of the `qwen3` architecture.

    python export.py --out build --type f32 --file build/hanzo-tiny-f32.gguf
    python export.py --out build --type q8_0 --file build/hanzo-tiny-q8_0.gguf
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch

import tokenizer as tok
from model import Config

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
DESCRIPTION = ("A demo model of about three million parameters, trained on stories and chats that a small grammar generated. "
               "It tells short stories and answers simple questions.")


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in tok.SPECIALS else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    pad, _, end = (tokens.index(s) for s in tok.SPECIALS)
    writer.add_bos_token_id(pad)
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(end)
    writer.add_pad_token_id(pad)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tok.CHAT_TEMPLATE)


def add_hyperparameters(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_name("hanzo-tiny")
    writer.add_description(DESCRIPTION)
    writer.add_license("MIT OR Apache-2.0")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_vocab_size(config.vocab)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder that train.py wrote")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--type", choices=TYPES, default="f32", help="type of the matrices; norms stay F32")
    parser.add_argument("--raw", action="store_true", help="the last weights instead of their running average")
    args = parser.parse_args()

    state = torch.load(args.out / "checkpoint.pt", weights_only=True)
    config = Config(**state["config"])
    weights = state["model" if args.raw else "average"]
    kind = TYPES[args.type]
    writer = gguf.GGUFWriter(args.file, "qwen3")
    add_hyperparameters(writer, config)
    writer.add_file_type({"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}[args.type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, tok.load(args.out / "tokenizer.json"))
    for name, tensor in weights.items():
        values = tensor.numpy().astype(np.float32)
        if values.ndim == 2 and args.type != "f32":
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{args.file}: step {state['step']}, {args.file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
