"""The codec decoder of Qwen3-Omni as a streaming step: frames in, samples out, the past in explicit states.

Everything in the decoder is causal, so a stream needs no look-ahead and no context to decode again. Its past is the
last inputs of every convolution and the keys and values inside the sliding window; with them, any chunking gives the
samples of the one-shot decode. A stream's first `lead` samples don't exist (the transposed convolutions are trimmed on
both sides, and the trims compound); the caller drops them, so `frames` frames make `frames * hop - lead` samples.

The step is a pure function of tensors whose shapes depend on the batch and the frames alone, for CUDA graphs,
`torch.export` and ONNX. Parameters are named as in the checkpoint, without the prefix `code2wav.`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from omni.stages.qwen3_omni.decoder_layers import (
    DILATIONS,
    KERNEL,
    Block,
    CausalConv,
    ConvNeXt,
    Layer,
    Past,
    RMSNorm,
    SnakeBeta,
    Upsample,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Sizes of the decoder; the defaults are those of Qwen3-Omni-30B-A3B."""

    codebook_size: int = 2048
    num_quantizers: int = 16
    hidden_size: int = 1024
    intermediate_size: int = 3072
    num_hidden_layers: int = 8
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    sliding_window: int = 72
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    decoder_dim: int = 1536
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[int, ...] = (2, 2)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From the `code2wav_config` of a checkpoint's config.json."""
        values = {**data, **(data.get("rope_parameters") or {})}
        known: dict[str, Any] = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        for name in known.keys() & {"upsample_rates", "upsampling_ratios"}:
            known[name] = tuple(known[name])
        return cls(**known)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def hop(self) -> int:
        """Samples per frame."""
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)

    @property
    def leads(self) -> tuple[int, ...]:
        """After each decoder block, how many samples at a stream's start don't exist."""
        out = [0]
        for rate in self.upsample_rates:
            out.append((out[-1] + 1) * rate)
        return tuple(out[1:])

    @property
    def lead(self) -> int:
        """Samples of a stream's first step that are to be dropped."""
        return self.leads[-1]

    @property
    def past_frames(self) -> int:
        """Frames before the current one that attention sees."""
        return self.sliding_window - 1

    @property
    def state_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of a stream's states in the order of computation."""
        kv = (self.num_key_value_heads, self.past_frames, self.head_dim)
        shapes: list[tuple[int, ...]] = [kv] * (2 * self.num_hidden_layers)
        shapes += [(self.hidden_size, KERNEL - 1)] * (len(self.upsampling_ratios) + 1)
        channels = self.decoder_dim
        for _ in self.upsample_rates:
            shapes.append((channels, 1))
            channels //= 2
            shapes += [(channels, (KERNEL - 1) * dilation) for dilation in DILATIONS]
        return [*shapes, (channels, KERNEL - 1)]

    def states(
        self, batch: int, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> list[Tensor]:
        """The states of `batch` streams that haven't begun."""
        return [torch.zeros(batch, *shape, dtype=dtype, device=device) for shape in self.state_shapes]


class Transformer(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        heads, kv_heads, eps = config.num_attention_heads, config.num_key_value_heads, config.rms_norm_eps
        self.layers = nn.ModuleList(
            Layer(config.hidden_size, config.intermediate_size, heads, kv_heads, eps)
            for _ in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, eps)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        for layer in self.layers:
            x = layer(x, past)
        out: Tensor = self.norm(x)
        return out


class Decoder(nn.Module):
    """The `Step` of a checkpoint in torch, in the dtype of its parameters."""

    frequencies: Tensor
    offsets: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.code_embedding = nn.Embedding(config.codebook_size * config.num_quantizers, config.hidden_size)
        self.pre_transformer = Transformer(config)
        self.upsample = nn.ModuleList(
            nn.ModuleList([Upsample(config.hidden_size, config.hidden_size, ratio, 1), ConvNeXt(config.hidden_size)])
            for ratio in config.upsampling_ratios
        )
        channels = config.decoder_dim
        decoder: list[nn.Module] = [CausalConv(config.hidden_size, channels, KERNEL)]
        for rate, lead in zip(config.upsample_rates, config.leads, strict=True):
            decoder.append(Block(channels, rate, lead))
            channels //= 2
        self.decoder = nn.ModuleList([*decoder, SnakeBeta(channels), CausalConv(channels, 1, KERNEL)])
        # On the CPU by name: a decoder that is made on the meta device gets its parameters later, but no buffers.
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu") / config.head_dim
        self.register_buffer("frequencies", 1.0 / config.rope_theta**exponents, persistent=False)
        steps = torch.arange(config.num_quantizers, device="cpu") * config.codebook_size
        self.register_buffer("offsets", steps, persistent=False)

    def _past(self, position: Tensor, frames: int, states: Sequence[Tensor]) -> Past:
        device, before = position.device, self.config.past_frames
        frame = torch.arange(frames, device=device)
        # The angles are float32 in any precision, as `transformers` has them.
        angle = (position[:, None] + frame)[..., None].float() * self.frequencies.float()
        angle = torch.cat((angle, angle), -1)[:, None]
        key = torch.arange(before + frames, device=device)
        # Key j stands at position + j - before: not after the frame, not out of its window, not before the stream.
        near = (key <= frame[:, None] + before) & (key >= frame[:, None])
        there = key >= (before - position)[:, None, None]
        dtype = self.code_embedding.weight.dtype
        return Past(
            states=iter(states),
            fresh=(position == 0)[:, None, None],
            visible=(near & there)[:, None],
            cos=angle.cos().to(dtype),
            sin=angle.sin().to(dtype),
            renewed=[],
        )

    def forward(self, codes: Tensor, position: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        past = self._past(position, codes.shape[1], states)
        x = self.code_embedding(codes + self.offsets).mean(2)
        x = self.pre_transformer(x, past).transpose(1, 2)
        for pair in self.upsample:
            for module in pair.children():
                x = module(x, past)
        for module in self.decoder:
            x = module(x) if isinstance(module, SnakeBeta) else module(x, past)
        return (x[:, 0].clamp(-1, 1), *past.renewed)
