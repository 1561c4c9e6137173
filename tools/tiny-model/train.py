"""Trains hanzo-tiny on the corpus grammar. Seeded; runs on a CPU.

    python train.py --out build                 # from scratch
    python train.py --out build --resume        # go on from the last checkpoint
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import tokenizer as tok
from corpus import dialogues, stories
from model import Config, Tiny

ROW, LONG_ROW = 256, 512
# Of the bare text, how many documents are facts; the others are stories.
FACT_SHARE = 0.1
# A short reply is a fact: its few tokens must not drown among those of the stories.
FACT_TOKENS, FACT_WEIGHT = 48, 2.0


class Stream:
    """Endless packed batches. A document is a story or a chat; rows hold whole documents, and only what the model should say has weight."""

    def __init__(self, tokenizer, seed: int, tokens: int, plain: float = 0.3, stories_weight: float = 34, drills: float = 0.0):
        self.tokenizer = tokenizer
        self.plain, self.stories_weight, self.drills = plain, stories_weight, drills
        self.rng = random.Random(seed)
        self.tokens = tokens
        self.rows = {ROW: [], LONG_ROW: []}
        self.open: list[tuple[list[int], list[float], list[int]]] = []

    def document(self) -> tuple[list[int], list[float]]:
        encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False).ids
        if self.rng.random() < self.drills:
            return self.drill()
        if self.rng.random() < self.plain:
            ids = encode(dialogues.facts(self.rng) if self.rng.random() < FACT_SHARE else stories.plain(self.rng)) + [2]
            lead = [0] if self.rng.random() < 0.05 else []
            return lead + ids, [0.0] * len(lead) + [1.0] * len(ids)
        ids: list[int] = []
        weights: list[float] = []
        for message in dialogues.conversation(self.rng, self.stories_weight):
            head = encode(f"{tok.START}{message['role']}\n")
            body = encode(message["content"]) + [2]
            said = 0.0 if message["role"] != "assistant" else FACT_WEIGHT if len(body) <= FACT_TOKENS else 1.0
            ids += head + body
            weights += [0.0] * len(head) + [said] * len(body)
            newline = encode("\n")
            ids += newline
            weights += [0.0] * len(newline)
        return ids, weights

    def drill(self) -> tuple[list[int], list[float]]:
        """A random run of tokens, said twice; only the second has weight. Teaches a small network to copy long before stories would."""
        run = [self.rng.randrange(3, self.tokenizer.get_vocab_size()) for _ in range(self.rng.randint(4, 40))]
        return run + run, [0.0] * (len(run) + 1) + [1.0] * (len(run) - 1)

    def batch(self):
        """ids, targets, weights, document numbers, each [rows, length]."""
        while True:
            for length, rows in self.rows.items():
                if len(rows) * length >= self.tokens:
                    self.rows[length] = []
                    return self.collate(rows, length)
            ids, weights = self.document()
            if len(ids) > LONG_ROW:
                continue
            if len(ids) > ROW:
                self.rows[LONG_ROW].append((ids, weights, [0] * len(ids)))
                continue
            for row in self.open:
                if len(row[0]) + len(ids) <= ROW:
                    number = row[2][-1] + 1
                    row[0].extend(ids)
                    row[1].extend(weights)
                    row[2].extend([number] * len(ids))
                    break
            else:
                self.open.append((list(ids), list(weights), [0] * len(ids)))
                if len(self.open) > 24:
                    fullest = max(self.open, key=lambda row: len(row[0]))
                    self.open.remove(fullest)
                    self.rows[ROW].append(fullest)

    @staticmethod
    def collate(rows, length):
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        weights = torch.zeros(len(rows), length)
        document = torch.full((len(rows), length), -1)
        for r, (i, w, d) in enumerate(rows):
            ids[r, : len(i)] = torch.tensor(i)
            weights[r, : len(w)] = torch.tensor(w)
            document[r, : len(d)] = torch.tensor(d)
        targets = ids.roll(-1, dims=1)
        next_weight = weights.roll(-1, dims=1)
        same = document == document.roll(-1, dims=1)
        same[:, -1] = False
        return ids, targets, torch.where(same, next_weight, 0.0), document


def loss_of(model: Tiny, batch, autocast: bool) -> torch.Tensor:
    ids, targets, weights, document = batch
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        h = model.features(ids, document)
        keep = weights > 0
        logits = h[keep] @ model.token_embd.weight.T
    losses = F.cross_entropy(logits.float(), targets[keep], reduction="none")
    return (losses * weights[keep]).sum() / weights[keep].sum()


def rate(step: int, warmup: int, steps: int, decay: int) -> float:
    """Warm up, stay, then go down linearly to 2 % over the last `decay` steps."""
    return min(1.0, (step + 1) / warmup, max(0.02, (steps - step) / decay))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--decay", type=int, default=1200, help="steps over which the rate goes down, at the end")
    parser.add_argument("--until", type=int, help="stop here, before the schedule ends, to go on with --resume")
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a batch")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plain", type=float, default=0.3, help="share of documents that are bare text")
    parser.add_argument("--stories", type=float, default=34, help="weight of stories among the topics of chats")
    parser.add_argument("--drills", type=float, default=0.0, help="share of documents that are copying drills")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checkpoint-every", type=int, default=100)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    vocabulary = args.out / "tokenizer.json"
    if not vocabulary.exists():
        tok.train(args.seed, 12000).save(str(vocabulary))
    tokenizer = tok.load(vocabulary)
    config = Config(vocab=tokenizer.get_vocab_size())
    model = Tiny(config)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "token_embd" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "token_embd" in name]
    optimizers = [torch.optim.Muon(matrices, lr=args.rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
                  torch.optim.AdamW(others, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)]
    step = 0
    last = args.out / "checkpoint.pt"
    if args.resume and last.exists():
        state = torch.load(last, weights_only=True)
        model.load_state_dict(state["model"])
        average = state["average"]
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        step = state["step"]
    # A resumed run reads fresh text, not what it has read already.
    stream = Stream(tokenizer, args.seed + 1 + step, args.tokens, args.plain, args.stories, args.drills)
    valid = [Stream(tokenizer, args.seed - 1, args.tokens).batch() for _ in range(1)]
    print(f"parameters {sum(p.numel() for p in model.parameters())}, vocabulary {config.vocab}", flush=True)

    started, seen, running = time.time(), 0, None
    end = min(args.steps, args.until or args.steps)
    while step < end:
        batch = stream.batch()
        factor = rate(step, args.warmup, args.steps, args.decay)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = args.rate * factor
        loss = loss_of(model, batch, args.bf16)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        keep = min(0.995, (step + 1) / (step + 10))
        with torch.no_grad():
            for name, p in model.named_parameters():
                average[name].lerp_(p, 1 - keep)
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        seen += int((batch[3] >= 0).sum())
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {running:.4f} rate {args.rate * factor:.5f} tokens {seen} seconds {time.time() - started:.0f}", flush=True)
        if step % args.checkpoint_every == 0 or step == end:
            with torch.no_grad():
                live = {name: p.detach().clone() for name, p in model.named_parameters()}
                model.load_state_dict(average)
                held_out = sum(loss_of(model, b, False).item() for b in valid) / len(valid)
                model.load_state_dict(live)
            print(f"step {step} held-out {held_out:.4f}", flush=True)
            with open(args.out / "curve.jsonl", "a") as curve:
                curve.write(json.dumps({"step": step, "train": round(running, 4), "held_out": round(held_out, 4)}) + "\n")
            temporary = last.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "average": average, "optimizers": [o.state_dict() for o in optimizers],
                        "step": step, "config": config.as_dict()}, temporary)
            temporary.replace(last)


if __name__ == "__main__":
    main()
