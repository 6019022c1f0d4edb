"""The code predictor: of a frame's first code, the other codes, as one pure function over a batch.

`transformers` runs a whole `generate` of one request for this, 15 tokens long. Here it is one function of fixed
shapes, without a cache object and without looking at a value on the host: one CUDA graph per batch size. A sampled
code is `argmax(p / noise)` with noise drawn from Exponential(1), which is what `torch.multinomial` computes; with the
noise of its own generator a request's codes don't depend on its neighbours.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

TOP_K: Final = 50
TOP_P: Final = 0.8
"""What `transformers` samples these codes with, whatever the talker's own sampling is."""


def keep_likely(logits: Tensor, top_k: int = TOP_K, top_p: float = TOP_P) -> Tensor:
    """`logits` [B, V] with all but the `top_k` largest, and of these all but the nucleus of mass `top_p`, at -inf."""
    top_k = min(top_k, logits.shape[-1])
    least = torch.topk(logits, top_k).values[:, -1:]
    logits = logits.masked_fill(logits < least, -torch.inf)
    ascending, order = torch.sort(logits, descending=False)
    tail = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    tail = torch.cat((tail[:, :-1], torch.zeros_like(tail[:, :1])), -1)
    return logits.masked_fill(torch.zeros_like(tail).scatter(-1, order, tail), -torch.inf)


class Predictor(Protocol):
    """`codes, embedding = predictor(hidden, first, noise, sampled)`, however it is computed. All are on one device.

    hidden     [B, hidden size], the talker's last hidden state, after its final norm, in the talker's dtype
    first      int64 [B], the frame's first code
    noise      float32 [B, groups - 1, codebook], Exponential(1); of no matter in rows that don't sample
    sampled    bool [B], rows that sample; the others take the likeliest code
    codes      int64 [B, groups], the first one included
    embedding  [B, hidden size] as `hidden`, sum of the embeddings of all codes of the frame
    """

    def __call__(self, hidden: Tensor, first: Tensor, noise: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]: ...


class CodePredictor(nn.Module):
    """The `Predictor` of a checkpoint in torch."""

    cos: Tensor
    sin: Tensor

    def __init__(self, predictor: Any, first_embedding: nn.Embedding) -> None:
        """`predictor` is the talker's `code_predictor` in `transformers`, `first_embedding` the talker's own."""
        super().__init__()
        config = predictor.config
        self.groups: int = config.num_code_groups
        self.codebook: int = config.vocab_size
        self.hidden: int = config.hidden_size
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._dim: int = config.head_dim
        self._layers = predictor.model.layers
        self._norm = predictor.model.norm
        self._heads_of_group = predictor.lm_head
        self._embeddings = predictor.model.codec_embedding
        self._first_embedding = first_embedding
        angle = torch.arange(self.groups + 1, device="cpu")[:, None].float() * predictor.model.rotary_emb.inv_freq.cpu()
        angle = torch.cat((angle, angle), -1)
        device = first_embedding.weight.device
        self.register_buffer("cos", angle.cos().to(device), persistent=False)
        self.register_buffer("sin", angle.sin().to(device), persistent=False)

    def _rotated(self, x: Tensor, at: int) -> Tensor:
        count, half = x.shape[2], self._dim // 2
        cos, sin = self.cos[at : at + count].to(x.dtype), self.sin[at : at + count].to(x.dtype)
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def _forward(self, x: Tensor, cache: list[tuple[Tensor, Tensor]], at: int) -> Tensor:
        """The last hidden state [B, hidden size] of `x` [B, n, hidden size] at position `at`; extends the cache."""
        batch, count, _ = x.shape
        for number, layer in enumerate(self._layers):
            attention = layer.self_attn
            h = layer.input_layernorm(x)
            q = attention.q_norm(attention.q_proj(h).view(batch, count, self._heads, self._dim)).transpose(1, 2)
            k = attention.k_norm(attention.k_proj(h).view(batch, count, self._kv_heads, self._dim)).transpose(1, 2)
            v = attention.v_proj(h).view(batch, count, self._kv_heads, self._dim).transpose(1, 2)
            q, k = self._rotated(q, at), self._rotated(k, at)
            if at:
                k, v = torch.cat((cache[number][0], k), 2), torch.cat((cache[number][1], v), 2)
                cache[number] = (k, v)
            else:
                cache.append((k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=count > 1, enable_gqa=True)
            x = x + attention.o_proj(y.transpose(1, 2).reshape(batch, count, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        out: Tensor = self._norm(x[:, -1])
        return out

    def forward(self, hidden: Tensor, first: Tensor, noise: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        embeddings = [self._first_embedding(first)]
        codes = [first]
        x, cache, at = torch.stack((hidden, embeddings[0]), 1), list[tuple[Tensor, Tensor]](), 0
        for group in range(self.groups - 1):
            logits = self._heads_of_group[group](self._forward(x, cache, at)).float()
            at += x.shape[1]
            drawn = (keep_likely(logits).softmax(-1) / noise[:, group]).argmax(-1)
            code = torch.where(sampled, drawn, logits.argmax(-1))
            codes.append(code)
            embeddings.append(self._embeddings[group](code))
            x = embeddings[-1][:, None]
        return torch.stack(codes, 1), torch.stack(embeddings, 1).sum(1)
