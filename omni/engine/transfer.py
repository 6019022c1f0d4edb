"""Between host and device without making the host wait: through pinned memory, in the order of the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """`values`, numbers in lists or an array, as a tensor on `device`."""
    host = torch.from_numpy(np.array(values)).to(dtype)
    # The allocator of pinned memory keeps what is being copied until it is.
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def download(tensor: Tensor) -> Callable[[], npt.NDArray[Any]]:
    """Begins to copy `tensor` to the host; what is returned waits for it. Later work on the device isn't waited for."""
    if tensor.device.type != "cuda":
        copy = tensor.numpy(force=True).copy()
        return lambda: copy
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(tensor.device))

    def wait() -> npt.NDArray[Any]:
        there.synchronize()
        return host.numpy()

    return wait
