"""A hand-over: a small JSON description and the arrays that go with it, as two tensors.

Preprocess hands the prompt to the thinker this way, the thinker hands the talker what it needs of the prompt. What is
in it is for the two stages of one implementation to agree on; how it is packed is here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from omni.contract.errors import UNREADABLE, OmniError

_ALIGN = 16


@dataclass(frozen=True, slots=True)
class Handover:
    """`meta` is JSON; `arrays` are C-contiguous, of any shape and of any plain numeric dtype."""

    meta: dict[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def pack_handover(handover: Handover) -> tuple[bytes, npt.NDArray[np.uint8]]:
    """`(HANDOVER, ARRAYS)`: JSON with the layout, and all arrays behind each other, each aligned to 16 bytes."""
    layout: list[dict[str, Any]] = []
    chunks: list[npt.NDArray[np.uint8]] = []
    size = 0
    for name, array in handover.arrays.items():
        raw = np.ascontiguousarray(array)
        layout.append({"name": name, "dtype": raw.dtype.str, "shape": list(array.shape), "offset": size})
        padded = np.zeros(-(-raw.nbytes // _ALIGN) * _ALIGN, np.uint8)
        padded[: raw.nbytes] = raw.reshape(-1).view(np.uint8)
        chunks.append(padded)
        size += padded.nbytes
    head = json.dumps({"meta": handover.meta, "arrays": layout}, ensure_ascii=False, separators=(",", ":"))
    return head.encode(), np.concatenate(chunks) if chunks else np.empty(0, np.uint8)


def unpack_handover(head: bytes, arrays: npt.NDArray[np.uint8]) -> Handover:
    """The inverse; the arrays are views of `arrays`. Raises `OmniError` when the two don't fit together."""
    try:
        body = json.loads(head)
        out: dict[str, npt.NDArray[Any]] = {}
        for one in body["arrays"]:
            dtype = np.dtype(one["dtype"])
            if dtype.hasobject:
                raise ValueError
            count = int(np.prod(one["shape"], dtype=np.int64))
            out[one["name"]] = np.frombuffer(arrays, dtype, count, one["offset"]).reshape(one["shape"])
        return Handover(body["meta"], out)
    except UNREADABLE:
        raise OmniError("A hand-over between stages can't be read.") from None
