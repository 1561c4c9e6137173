"""A second, independent forward pass: numpy, from nothing but a GGUF file (dequantized to f32). It is the oracle for the recorded replies."""

from pathlib import Path

import gguf
import numpy as np


def read(reader: gguf.GGUFReader, key: str):
    return reader.fields[key].contents()


class Reference:
    def __init__(self, path: Path):
        reader = gguf.GGUFReader(path)
        get = lambda key: read(reader, f"qwen3.{key}")
        self.layers, self.context = get("block_count"), get("context_length")
        self.heads, self.kv_heads = get("attention.head_count"), get("attention.head_count_kv")
        self.head_dim, self.eps = get("attention.key_length"), get("attention.layer_norm_rms_epsilon")
        self.rope_base = get("rope.freq_base")
        self.eos = read(reader, "tokenizer.ggml.eos_token_id")
        self.types = {t.name: t.tensor_type.name for t in reader.tensors}
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        half = self.head_dim // 2
        self.frequency = self.rope_base ** (-np.arange(half) / half)

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x, positions):
        """x [length, heads, head_dim]; dimension i turns with i + head_dim / 2."""
        angle = positions[:, None, None] * self.frequency
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1).astype(np.float32)

    def forward(self, ids, cache=None):
        """Logits [len(ids), vocab]. `cache` is a list of (k, v) a layer, extended in place."""
        cache = [None] * self.layers if cache is None else cache
        past = 0 if cache[0] is None else cache[0][0].shape[0]
        positions = np.arange(past, past + len(ids))
        x = self.w["token_embd.weight"][np.asarray(ids)]
        for layer in range(self.layers):
            name = lambda part: f"blk.{layer}.{part}.weight"
            h = self.norm(x, name("attn_norm"))
            q = (h @ self.w[name("attn_q")].T).reshape(len(ids), self.heads, self.head_dim)
            k = (h @ self.w[name("attn_k")].T).reshape(len(ids), self.kv_heads, self.head_dim)
            v = (h @ self.w[name("attn_v")].T).reshape(len(ids), self.kv_heads, self.head_dim)
            q = self.rope(self.norm(q, name("attn_q_norm")), positions)
            k = self.rope(self.norm(k, name("attn_k_norm")), positions)
            if cache[layer] is not None:
                k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
            cache[layer] = (k, v)
            share = self.heads // self.kv_heads
            scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, share, axis=1)) / np.sqrt(self.head_dim)
            scores = np.where(np.arange(k.shape[0])[None, None, :] <= positions[None, :, None], scores, -np.inf)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            attended = np.einsum("hqk,khd->qhd", scores, np.repeat(v, share, axis=1)).reshape(len(ids), -1)
            x = x + attended.astype(np.float32) @ self.w[name("attn_output")].T
            h = self.norm(x, name("ffn_norm"))
            gate = h @ self.w[name("ffn_gate")].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ self.w[name("ffn_up")].T)) @ self.w[name("ffn_down")].T
        x = self.norm(x, "output_norm.weight")
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T

    def greedy(self, ids, limit=320):
        """Ids of the reply with its end token, and each step's margin between the best two logits."""
        cache = [None] * self.layers
        logits = self.forward(ids, cache)[-1]
        reply, margins = [], []
        while len(reply) < min(limit, self.context - len(ids)):
            second, best = np.partition(logits, -2)[-2:]
            reply.append(int(logits.argmax()))
            margins.append(float(best - second))
            if reply[-1] == self.eos:
                break
            logits = self.forward(reply[-1:], cache)[-1]
        return reply, margins
