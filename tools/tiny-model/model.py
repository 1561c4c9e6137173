"""The network in PyTorch: Qwen3 (pre-norm, per-head RMS norm of q and k, grouped-query attention, SwiGLU, tied embedding)."""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    """Every contraction dimension is a multiple of 256 so that K-quants apply."""

    vocab: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 512
    context: int = 512
    rope_base: float = 10000.0
    eps: float = 1e-6

    def as_dict(self) -> dict:
        return asdict(self)


def rope_tables(config: Config, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [.., head_dim] of the rotation that pairs dimension i with i + head_dim / 2 (NEOX order)."""
    half = config.head_dim // 2
    frequency = config.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = positions.float()[..., None] * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.attn_norm = nn.RMSNorm(c.width, eps=c.eps)
        self.attn_q = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.attn_k = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.attn_v = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.attn_output = nn.Linear(c.heads * c.head_dim, c.width, bias=False)
        self.attn_q_norm = nn.RMSNorm(c.head_dim, eps=c.eps)
        self.attn_k_norm = nn.RMSNorm(c.head_dim, eps=c.eps)
        self.ffn_norm = nn.RMSNorm(c.width, eps=c.eps)
        self.ffn_gate = nn.Linear(c.width, c.hidden, bias=False)
        self.ffn_up = nn.Linear(c.width, c.hidden, bias=False)
        self.ffn_down = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        c = self.c
        batch, length, _ = x.shape
        h = self.attn_norm(x)
        q = self.attn_q_norm(self.attn_q(h).view(batch, length, c.heads, c.head_dim)).transpose(1, 2)
        k = self.attn_k_norm(self.attn_k(h).view(batch, length, c.kv_heads, c.head_dim)).transpose(1, 2)
        v = self.attn_v(h).view(batch, length, c.kv_heads, c.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        share = c.heads // c.kv_heads
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.attn_output(attended.transpose(1, 2).reshape(batch, length, -1))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Tiny(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab, c.width)
        self.blk = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.output_norm = nn.RMSNorm(c.width, eps=c.eps)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                scale = (2 * c.layers) ** -0.5 if name.endswith(("attn_output.weight", "ffn_down.weight")) else 1.0
                nn.init.normal_(p, std=0.04 * scale)

    def features(self, ids: Tensor, document: Tensor) -> Tensor:
        """Hidden states [batch, length, width]. `document` numbers the documents packed into a row; none sees another."""
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = (document[:, :, None] == document[:, None, :]) & causal
        cos, sin = rope_tables(self.c, torch.arange(length))
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin, mask[:, None])
        return self.output_norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch, length, vocab] of one document a row."""
        return self.features(ids, torch.zeros_like(ids)) @ self.token_embd.weight.T

    @torch.no_grad()
    def greedy(self, ids: list[int], end: int, limit: int = 300) -> list[int]:
        reply: list[int] = []
        while len(reply) < limit and len(ids) + len(reply) < self.c.context:
            token = int(self(torch.tensor([ids + reply]))[0, -1].argmax())
            reply.append(token)
            if token == end:
                break
        return reply
