"""The seam between protocols and Triton: a job goes in, chunks come out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from omni.contract.chunk import Chunk
from omni.contract.job import Job


class Engine(Protocol):
    """Runs generations. One engine serves the whole front door; all methods belong to its event loop."""

    @property
    def alive(self) -> bool:
        """Whether the stages seem to be there; cheap. True proves little, False means that nothing can be served."""

    async def start(self) -> None:
        """Connect; returns at once also when the stages aren't there yet."""

    def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        """The answer, piece by piece. Raises an `OmniError` when it fails, before or after the first chunk.

        Closing the generator, or cancelling the task that iterates it, aborts the generation in every stage. Always
        iterate inside `contextlib.aclosing`, or the abort waits for the garbage collector.
        """

    async def close(self) -> None:
        """Abort what runs, which then raises `Unavailable`, and disconnect. A second call does nothing."""
