"""The messages between the engine and Triton: requests are made here, and responses read.

The only file of the front door that knows tensors. They are the raw ones of gRPC, since tritonclient's own can't be put
together in pieces.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tritonclient.grpc import service_pb2 as pb

from omni.contract import errors
from omni.contract.chunk import Chunk, TextDelta
from omni.contract.errors import OmniError
from omni.contract.job import Job, pack_blobs
from omni.contract.names import SETTINGS
from omni.contract.tensors import Control

PIECE_BYTES: Final = 2 << 20
"""Most bytes of media in one request. Each is copied twice on the event loop, which runs other things in between."""

read_stream: Final = pb.ModelStreamInferResponse.FromString
"""Reads one response of a stream: {infer_response, error_message}."""


@dataclass(slots=True)
class Answer:
    """One response of an ensemble, decoded."""

    chunk: Chunk
    error: OmniError | None
    eos: bool


def read(response: Any) -> tuple[int, Answer] | None:
    """`(SEQ, answer)` of a ModelInferResponse; None when it carries nothing, as the final one may."""
    raw = {out.name: data for out, data in zip(response.outputs, response.raw_output_contents, strict=True)}
    if "SEQ" not in raw:
        return None
    text = TextDelta.loads(raw["TEXT"][4:]) if "TEXT" in raw else TextDelta()
    chunk = Chunk(
        text=text.text,
        tokens=text.tokens,
        audio=raw.get("AUDIO", b""),
        finish=text.finish,
        usage=text.usage,
        logprobs=text.logprobs,
        event=json.loads(raw["EVENT"][4:]) if "EVENT" in raw else None,
    )
    error = errors.from_json(json.loads(raw["ERR"][4:])) if "ERR" in raw else None
    return int.from_bytes(raw["SEQ"], "little"), Answer(chunk, error, raw.get("EOS", b"\0") != b"\0")


def _string(request: Any, name: str, value: bytes) -> None:
    request.inputs.add(name=name, datatype="BYTES", shape=[1])
    request.raw_input_contents.append(len(value).to_bytes(4, "little") + value)


def requests(job: Job, lease: str) -> Generator[bytes, None, None]:
    """The ModelInferRequests of a generation, serialized: one, or one for each piece of its media."""
    settings = replace(job.settings, lease=lease).dumps()
    head, media = pack_blobs(job)
    pieces = list(_cut(media, PIECE_BYTES)) or [[]]
    for seq, piece in enumerate(pieces):
        request = pb.ModelInferRequest(model_name=job.model, id=job.id)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        request.parameters[SETTINGS].string_param = settings
        if seq == 0:
            _string(request, "JOB", head)
        if len(pieces) > 1:
            request.inputs.add(name="PIECE", datatype="INT32", shape=[1])
            request.raw_input_contents.append(seq.to_bytes(4, "little"))
        yield _with_media(request, piece)


def _cut(media: Iterable[bytes], size: int) -> Iterator[list[memoryview]]:
    """`media` behind each other in pieces of `size` bytes, the last with the rest; nothing is copied."""
    piece, room = list[memoryview](), size
    for blob in media:
        rest = memoryview(blob)
        while rest:
            piece.append(rest[:room])
            rest, room = rest[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece


def _with_media(request: Any, media: Sequence[memoryview]) -> bytes:
    """`request`, serialized, with `media` behind each other as its last input: they are copied once."""
    if not media:
        return bytes(request.SerializeToString())
    size = sum(map(len, media))
    request.inputs.add(name="MEDIA", datatype="UINT8", shape=[size])
    # What stands behind a serialized message adds to it: here one more item of its last field.
    return b"".join((request.SerializeToString(), _RAW_INPUT, _varint(size), *media))


_RAW_INPUT = bytes([pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | 2])
"""The tag of one item of raw_input_contents: field number and wire type 2, which has its length before it."""


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have the highest bit set."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def control(stage: str, control: Control) -> bytes:
    """The ModelInferRequest of a control message to a stage, serialized."""
    request = pb.ModelInferRequest(model_name=stage, id=control.id or uuid.uuid4().hex)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    _string(request, "CONTROL", control.dumps())
    return bytes(request.SerializeToString())
