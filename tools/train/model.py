"""The Llama layout in PyTorch, with parameters named as GGUF names its tensors.

RMSNorm before each block, grouped-query attention, rotary positions on neighbouring pairs (2i, 2i+1), SwiGLU. Documents of
one row do not see each other. Optional fake quantization lets training feel the integer kernels' rounding.
"""
import json
import os
from typing import List, NamedTuple, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class Shape(NamedTuple):
    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    tied: bool
    vocab: int
    context: int
    rope_base: float
    epsilon: float


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.json"), encoding="utf-8") as shapes_file:
    SHAPES = {name: Shape(**fields) for name, fields in json.load(shapes_file).items()}


def fake_quantize(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Rounds groups of 32 along the last axis as the kernels do; the gradient passes straight through.

    "q8_0": symmetric 8 bit, fp16 scale. "q4_0": 4 bit, fp16 scale = signed extreme / -8. "a8": 8 bit, fp32 scale.
    """
    groups = x.detach().float().reshape(-1, 32)
    if kind == "q4_0":
        at = groups.abs().argmax(dim=1, keepdim=True)
        scale = (groups.gather(1, at) / -8).half().float()
        inverse = torch.where(scale == 0, scale, 1 / scale)
        rounded = ((groups * inverse + 8.5).floor().clamp(0, 15) - 8) * scale
    else:
        scale = groups.abs().amax(dim=1, keepdim=True) / 127
        scale = scale.half().float() if kind == "q8_0" else scale
        inverse = torch.where(scale == 0, scale, 1 / scale)
        rounded = (groups * inverse).round().clamp(-127, 127) * scale
    return x + (rounded.reshape(x.shape).to(x.dtype) - x).detach()


class Linear(nn.Module):
    """Matrix without bias. `fake` is None or the weight format to imitate (activations then go through "a8")."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.fake: Optional[str] = None

    def forward(self, x):
        if self.fake is None:
            return F.linear(x, self.weight)
        return F.linear(fake_quantize(x, "a8"), fake_quantize(self.weight, self.fake))


class Norm(nn.Module):
    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cosine, sine):
    """x: [batch, heads, time, head size]; pairs are neighbours."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


def attend(q, k, v, bias):
    """Softmax attention; bias: additive [.., time, time], or None for plain causal."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
    if bias is None:
        bias = torch.full((q.shape[-2], k.shape[-2]), float("-inf"), device=q.device).triu(1)
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v


def attend_newest(q, k, v, bias):
    """One query per row against a cache, without repeating keys: q [batch, kv heads, group, head size]."""
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    return scores.softmax(-1).to(v.dtype) @ v


class Block(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.heads, self.kv_heads, self.head = shape.heads, shape.kv_heads, shape.width // shape.heads
        self.attn_norm = Norm(shape.width, shape.epsilon)
        self.attn_q = Linear(shape.width, shape.width)
        self.attn_k = Linear(shape.width, self.kv_heads * self.head)
        self.attn_v = Linear(shape.width, self.kv_heads * self.head)
        self.attn_output = Linear(shape.width, shape.width)
        self.ffn_norm = Norm(shape.width, shape.epsilon)
        self.ffn_gate = Linear(shape.width, shape.ffn)
        self.ffn_up = Linear(shape.width, shape.ffn)
        self.ffn_down = Linear(shape.ffn, shape.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cosine, sine, bias, cache=None, at=0):
        batch, time, _ = x.shape
        y = self.attn_norm(x)
        q = rotate(self.attn_q(y).view(batch, time, self.heads, self.head).transpose(1, 2), cosine, sine)
        k = rotate(self.attn_k(y).view(batch, time, self.kv_heads, self.head).transpose(1, 2), cosine, sine)
        v = self.attn_v(y).view(batch, time, self.kv_heads, self.head).transpose(1, 2)
        if cache is not None:  # cache: [2, batch, kv heads, capacity, head size], filled up to `at`
            cache[0][:, :, at:at + time], cache[1][:, :, at:at + time] = k, v
            k, v = cache[0][:, :, :at + time], cache[1][:, :, :at + time]
        group = self.heads // self.kv_heads
        if time == 1 and cache is not None:
            y = attend_newest(q.reshape(batch, self.kv_heads, group, self.head).to(k.dtype), k, v, bias)
            y = y.reshape(batch, 1, -1)
        else:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
            y = attend(q, k, v, bias).transpose(1, 2).reshape(batch, time, -1)
        x = x + self.dropout(self.attn_output(y))
        y = self.ffn_norm(x)
        return x + self.dropout(self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y)))


class Llama(nn.Module):
    def __init__(self, shape: Shape, dropout: float = 0.0):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.width)
        self.blk = nn.ModuleList(Block(shape, dropout) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width, shape.epsilon)
        if not shape.tied:
            self.output = Linear(shape.width, shape.vocab)
        self.dropout = nn.Dropout(dropout)
        head = shape.width // shape.heads
        angle = torch.outer(torch.arange(shape.context).float(), shape.rope_base ** (-torch.arange(0, head, 2).float() / head))
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                narrow = (2 * shape.layers) ** -0.5 if "attn_output" in name or "ffn_down" in name else 1.0
                nn.init.normal_(weight, std=narrow * (0.02 if "token_embd" in name else weight.shape[1] ** -0.5))

    def forward(self, ids, bias=None, caches: Optional[List[torch.Tensor]] = None, at: int = 0):
        """Logits [batch, time, vocabulary]. With caches the ids stand at positions at..; either all begin at 0, or one is new
        and sees all that the cache holds (where `bias` is not -inf)."""
        x = self.dropout(self.token_embd(ids))
        if torch.is_autocast_enabled():
            x = x.to(torch.bfloat16)
        cosine = self.cosine[at:at + ids.shape[1]].to(x.dtype)
        sine = self.sine[at:at + ids.shape[1]].to(x.dtype)
        for i, block in enumerate(self.blk):
            x = block(x, cosine, sine, bias, None if caches is None else caches[i], at)
        x = self.output_norm(x)
        return F.linear(x, self.token_embd.weight) if self.shape.tied else self.output(x)

    def new_caches(self, batch: int, capacity: int, dtype) -> List[torch.Tensor]:
        head = self.shape.width // self.shape.heads
        size = (2, batch, self.shape.kv_heads, capacity, head)
        return [torch.zeros(size, dtype=dtype, device=self.cosine.device) for _ in range(self.shape.layers)]

    def imitate(self, kind: Optional[str]) -> None:
        """Fake-quantizes all matrices as `kind` from now on; None ends it."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.fake = kind


def document_bias(ids: torch.Tensor, begin: int, dtype) -> torch.Tensor:
    """Additive attention bias [batch, 1, time, time]: causal, and only inside the document that <|begin|> opened."""
    document = (ids == begin).cumsum(1)
    time = ids.shape[1]
    causal = torch.ones(time, time, dtype=torch.bool, device=ids.device).tril()
    seen = (document[:, :, None] == document[:, None, :]) & causal
    return torch.zeros(seen.shape, dtype=dtype, device=ids.device).masked_fill_(~seen, float("-inf")).unsqueeze(1)
