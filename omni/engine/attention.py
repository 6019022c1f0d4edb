"""Attention straight on the pool of keys and values, by flash attention's kernel for paged caches.

Without it, the keys and values of a pass are gathered from their blocks first, which is right everywhere but reads and
writes all of them once more.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import torch
from torch import Tensor

from omni.engine.kv import KVBatch

PAGED: Final = "omni_paged"
"""Our attention's name in `transformers`."""
PAGED_BLOCK: Final = 256
"""Tokens per block, of which the kernel wants multiples."""


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel is installed and can do it: on CUDA, in half precision."""
    half = dtype in (torch.float16, torch.bfloat16)
    return device.type == "cuda" and half and importlib.util.find_spec("flash_attn") is not None


def flash() -> Any:
    """`flash_attn_with_kvcache` of the package flash-attn."""
    from flash_attn import flash_attn_with_kvcache

    return flash_attn_with_kvcache


def use_paged(model: Any) -> None:
    """Makes a decoder of `transformers` attend on the pool. Its passes have to be told of the `KVBatch` as `batch`."""
    from transformers import AttentionInterface

    kernel = flash()

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, batch: KVBatch,
        **_: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """`query` [rows, heads, count, head size]; the new keys and values are in the pool already."""
        keys, values = batch.pool.layer(module.layer_idx)
        out = kernel(
            query.transpose(1, 2), keys, values, cache_seqlens=batch.starts + batch.count, block_table=batch.tables,
            softmax_scale=scaling, causal=True,
        )  # fmt: skip
        return out, None

    AttentionInterface.register(PAGED, attend)
    model.config._attn_implementation = PAGED
