"""Writes a vocabulary-only GGUF file from a tokenizer.json with a BPE model, so that both can be compared.

    python hf_to_gguf.py tokenizer.json PRE OUT.gguf

PRE is the value of tokenizer.ggml.pre (gemma4 also sets the model). Needs the `gguf` package.
"""

import json
import sys

import gguf


def convert(path, pre, out):
    with open(path, encoding="utf8") as f:
        data = json.load(f)
    model = data["model"]
    added = {t["id"]: t for t in data["added_tokens"]}
    size = 1 + max([*model["vocab"].values(), *added])
    tokens = [f"[PAD{i}]" for i in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for token, i in model["vocab"].items():
        tokens[i] = token
        is_byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">") and model.get("byte_fallback")
        types[i] = gguf.TokenType.BYTE if is_byte else gguf.TokenType.NORMAL
    for i, token in added.items():
        tokens[i] = token["content"]
        types[i] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_tokenizer_model("gemma4" if pre == "gemma4" else "gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    if (unk := model.get("unk_token")) is not None:
        writer.add_unk_token_id(model["vocab"][unk])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


if __name__ == "__main__":
    convert(*sys.argv[1:4])
