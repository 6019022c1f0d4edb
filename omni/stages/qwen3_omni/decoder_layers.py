"""The layers of the codec decoder, each a step over a past that it is handed.

Parameters are named as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

KERNEL = 7
DILATIONS = (1, 3, 9)


@dataclass(slots=True)
class Past:
    """What a step knows of the past of each row. The layers take their states from it in the order of computation."""

    states: Iterator[Tensor]
    fresh: Tensor
    """Whether the row's stream starts with this step, bool [B, 1, 1]."""
    visible: Tensor
    """Which keys a frame attends to, bool [B, 1, frames, window - 1 + frames]."""
    cos: Tensor
    sin: Tensor
    """Rotary embedding [B, 1, frames, head_dim]."""
    renewed: list[Tensor]

    def extend(self, x: Tensor, dim: int = -1) -> Tensor:
        """`x` with the next state before it; keeps the end of that as the state to come."""
        state = next(self.states)
        y = torch.cat((state, x), dim)
        self.renewed.append(y.narrow(dim, x.shape[dim], state.shape[dim]))
        return y

    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), -1) * self.sin

    def quiet(self, x: Tensor, lead: int) -> Tensor:
        """`x` [B, channels, T] with the first `lead` samples of a fresh stream at zero."""
        early = torch.arange(x.shape[-1], device=x.device) < lead
        return torch.where(self.fresh & early, torch.zeros((), dtype=x.dtype, device=x.device), x)


class CausalConv(nn.Module):
    """A convolution over the past: [B, inputs, T] to [B, outputs, T]."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self._remembers = kernel > 1

    def forward(self, x: Tensor, past: Past) -> Tensor:
        out: Tensor = self.conv(past.extend(x) if self._remembers else x)
        return out


class Upsample(nn.Module):
    """A transposed convolution with kernel `overlap * rate`: [B, inputs, T] to [B, outputs, T * rate]."""

    def __init__(self, inputs: int, outputs: int, rate: int, overlap: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, overlap * rate, stride=rate)
        self._remembers = overlap > 1
        self._rate = rate

    def forward(self, x: Tensor, past: Past) -> Tensor:
        out: Tensor
        if not self._remembers:
            out = self.conv(x)
            return out
        out = self.conv(past.extend(x))
        return out[..., self._rate : -self._rate]


class SnakeBeta(nn.Module):
    """x + sin²(αx) / β with α and β learnt per channel on a log scale (https://arxiv.org/abs/2006.08195)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha, beta = self.alpha.exp()[:, None], self.beta.exp()[:, None]
        return x + (1.0 / (beta + 1e-9)) * torch.sin(x * alpha) ** 2


class ConvNeXt(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(channels, channels, KERNEL, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, past: Past) -> Tensor:
        y = self.norm(self.dwconv(x, past).transpose(1, 2))
        y = self.gamma * self.pwconv2(functional.gelu(self.pwconv1(y)))
        out: Tensor = x + y.transpose(1, 2)
        return out


class Residual(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.act1 = SnakeBeta(channels)
        self.conv1 = CausalConv(channels, channels, KERNEL, dilation)
        self.act2 = SnakeBeta(channels)
        self.conv2 = CausalConv(channels, channels, 1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        out: Tensor = self.conv2(self.act2(self.conv1(self.act1(x), past)), past)
        return x + out


class Block(nn.Module):
    """One stage of upsampling. `lead` samples of its output don't exist; they are held at zero, as padding would be."""

    def __init__(self, channels: int, rate: int, lead: int) -> None:
        super().__init__()
        half = channels // 2
        self.block = nn.ModuleList(
            [SnakeBeta(channels), Upsample(channels, half, rate, 2), *(Residual(half, d) for d in DILATIONS)]
        )
        self._lead = lead

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = self.block[1](self.block[0](x), past)
        x = past.quiet(x, self._lead)
        for unit in self.block[2:]:
            x = past.quiet(unit(x, past), self._lead)
        return x


class RMSNorm(nn.Module):
    """Computed in float32 whatever the input is, as `transformers` does."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self._eps)
        return self.weight * y.to(x.dtype)


class LayerScale(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._dim = heads, kv_heads, hidden // heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self._dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self._dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        batch, count, _ = x.shape
        q = past.rotate(self.q_proj(x).view(batch, count, self._heads, self._dim).transpose(1, 2))
        k = past.rotate(self.k_proj(x).view(batch, count, self._kv_heads, self._dim).transpose(1, 2))
        v = self.v_proj(x).view(batch, count, self._kv_heads, self._dim).transpose(1, 2)
        k, v = past.extend(k, dim=2), past.extend(v, dim=2)
        if self._kv_heads != self._heads:
            k, v = (one.repeat_interleave(self._heads // self._kv_heads, 1) for one in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=past.visible)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(batch, count, -1))
        return out


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, hidden: int, inner: int, heads: int, kv_heads: int, eps: float) -> None:
        super().__init__()
        self.self_attn = Attention(hidden, heads, kv_heads)
        self.mlp = MLP(hidden, inner)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.self_attn_layer_scale = LayerScale(hidden)
        self.mlp_layer_scale = LayerScale(hidden)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), past))
        out: Tensor = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return out
