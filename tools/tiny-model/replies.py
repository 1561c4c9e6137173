"""Checks an exported GGUF and records its greedy replies.

    python replies.py MODEL.gguf --out build                        # print the replies; compare logits with PyTorch (F32 file)
    python replies.py MODEL.gguf --out build --write replies.json   # record them

Ids and margins come from the numpy forward over the dequantized file. An engine that quantizes activations can leave a reply at a
step whose margin is small; compare up to `ids_sure`, the ids before the first margin under 0.5.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import torch

import tokenizer as tok
from model import Config, Tiny
from reference import Reference

CHATS = ["Hello! Who are you?", "Tell me a story about a fox named Pip.", "What colour is a lemon?", "How do I run a real model?", "What is 3 + 4?"]
PLAIN = ["Once upon a time", "The little fox", "One day, a brave mouse", "Long ago, a clever owl", "Lily was a kind girl"]
MORE = ["hi", "tell me a story", "tell me a story about a dragon and an owl", "Tell me a bedtime story about a penguin named Zorbo.", "what can you do?", "Which day comes after Friday?",
        "What is the opposite of hot?", "Is an elephant bigger than a mouse?", "What is 7 times 8?", "what is 12 - 5", "Explain quantum physics.", "Once upon a time", "My name is Karlo.",
        "How many legs does a spider have?", "What is the capital of France?", "Write a poem about the moon.", "Tell me a joke.", "Thank you!", "Name the days of the week.",
        "Write me a story about a lost key", "What do bees eat?", "Tell me a story about sharing.", "Tell me a story about a brave dog named Rex.", "Who are you?", "Hi, what is your name?", "How are you?", "Count to ten.", "The dog", "I am sad"]


def encode_chat(tokenizer, message: str) -> list[int]:
    return tokenizer.encode(f"{tok.START}user\n{message}{tok.END}\n{tok.START}assistant\n", add_special_tokens=False).ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--more", action="store_true", help="print more replies than are recorded")
    args = parser.parse_args()

    tokenizer = tok.load(args.out / "tokenizer.json")
    reference = Reference(args.model)
    sample = encode_chat(tokenizer, CHATS[1]) + tokenizer.encode(PLAIN[0] + ", there was a brave fox.", add_special_tokens=False).ids
    state = torch.load(args.out / "checkpoint.pt", weights_only=True)
    model = Tiny(Config(**state["config"]))
    model.load_state_dict(state["average"])
    with torch.no_grad():
        ours = model(torch.tensor([sample]))[0].numpy()
    theirs = reference.forward(sample)
    print(f"logits of {len(sample)} positions against PyTorch: max abs difference {np.abs(ours - theirs).max():.2e}, "
          f"mean {np.abs(ours - theirs).mean():.2e}, argmax equal at {(ours.argmax(-1) == theirs.argmax(-1)).sum()}")
    cache = [None] * reference.layers
    steps = np.concatenate([reference.forward([i], cache) for i in sample])
    print(f"token by token against all at once: max abs difference {np.abs(steps - theirs).max():.2e}")

    entries = []
    prompts = [("chat", p) for p in CHATS] + [("plain", p) for p in PLAIN]
    if args.more:
        prompts += [("chat", p) for p in MORE] + [("plain", p) for p in MORE[-2:]]
    for kind, prompt in prompts:
        ids = encode_chat(tokenizer, prompt) if kind == "chat" else tokenizer.encode(prompt, add_special_tokens=False).ids
        reply, margins = reference.greedy(ids)
        text = tokenizer.decode([i for i in reply if i != reference.eos], skip_special_tokens=False)
        low = [i for i, m in enumerate(margins) if m < 0.5]
        entries.append({"kind": kind, "prompt": prompt, "prompt_ids": ids, "ids": reply, "text": text, "ends_with_eos": reply[-1] == reference.eos,
                        "min_margin": round(min(margins), 4), "ids_sure": low[0] if low else len(reply), "margins": [round(m, 3) for m in margins]})
        print(f"\n[{kind}] {prompt}\n  -> {text}\n  ({len(reply)} ids, end {reply[-1] == reference.eos}, smallest margin {min(margins):.3f})", flush=True)
    if args.write:
        digest = hashlib.sha256(args.model.read_bytes()).hexdigest()
        head = {"model_sha256": digest, "tensor_types": sorted(set(reference.types.values())), "template": tok.CHAT_TEMPLATE, "eos": reference.eos}
        fields = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        rows = ",\n".join("  " + json.dumps(entry) for entry in entries)
        args.write.write_text("{\n" + ",\n".join([*fields, f' "replies": [\n{rows}\n ]']) + "\n}\n")


if __name__ == "__main__":
    main()
