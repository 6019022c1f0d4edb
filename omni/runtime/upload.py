"""The job of one generation as preprocess is sent it: whole in one request, or in pieces that are put together here."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy.typing as npt

from omni.contract.errors import InvalidRequest, TooLarge
from omni.contract.job import media_size, unpack_job
from omni.contract.order import InOrder
from omni.contract.params import Settings
from omni.contract.tensors import JOB, MEDIA, PIECE, StageMessage, seq_of, string_of, unpack_request

Inputs = Mapping[str, npt.NDArray[Any]]

MAX_MEDIA_BYTES: Final = 1 << 30
"""Encoded media that one job may carry, bytes."""


class Upload:
    """Plain synchronous code; one for each generation.

    Requests without PIECE are whole. Pieces have one, from 0 without a gap, and may come in any order: the first
    carries JOB, and each the bytes of MEDIA from where the one before ended. JOB says how many there are, so no piece
    needs to say that it is the last. Memory is taken for what has come, whatever JOB says will come.
    """

    def __init__(self, max_bytes: int = MAX_MEDIA_BYTES) -> None:
        self._order: InOrder[Inputs] = InOrder()
        self._head: bytes | None = None
        self._media = io.BytesIO()
        self._came = 0
        self._size: int | None = None
        """Bytes of MEDIA that there are, once that is known."""
        self._max = max_bytes

    def add(self, id: str, inputs: Inputs, settings: Settings) -> StageMessage | None:
        """The job of generation `id`, with the request that makes it whole.

        Raises `InvalidRequest` when the job can't be read or the pieces don't fit it or each other, `TooLarge` when it
        has more media than it may, and a plain `OmniError` when a piece comes twice or never.
        """
        size = inputs[MEDIA.name].nbytes if MEDIA.name in inputs else 0
        self._came += size
        self._check(self._came)
        if PIECE.name not in inputs:
            self._order.push(0, inputs)
            if self._came > size:
                raise InvalidRequest("A job in one request has no pieces beside it.", param=PIECE.name)
            self._size = size
            return unpack_request(id, inputs, settings)
        seq = seq_of(inputs, PIECE)
        if seq > 0 and size == 0:
            raise InvalidRequest("A piece of the job carries no media.", param=MEDIA.name)
        for piece in self._order.push(seq, inputs):
            self._append(piece)
        if self._head is None or self._media.tell() != self._size:
            return None
        # Of a single part this is the very memory that the pieces were written to; BytesIO lets go of it.
        media, self._media = self._media.getvalue(), io.BytesIO()
        return StageMessage(job=unpack_job(id, self._head, media, settings), eos=True)

    def _append(self, piece: Inputs) -> None:
        head = piece.get(JOB.name)
        if (head is None) != (self._head is not None):
            raise InvalidRequest("The first piece of a job, and no other, carries its JOB.", param=JOB.name)
        if head is not None:
            self._head = string_of(head)
            size = media_size(self._head)
            self._check(size)
            self._size = size
            self._check(self._came)
        if MEDIA.name in piece:
            self._media.write(piece[MEDIA.name].data)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise TooLarge(f"The media of the request are larger than {self._max} bytes.", param=MEDIA.name)
        if self._size is not None and size > self._size:
            raise InvalidRequest("More media came than the job speaks of.", param=MEDIA.name)
