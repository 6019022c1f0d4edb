"""The tensors on every edge of the ensembles, and how a message between stages becomes tensors.

Each response of a stage is one request to the next. All tensors of an edge are optional except `SEQ`; a message
carries only what it has. Two stages that both name a tensor `TEXT`, `EVENT` or `ERR` pass it through at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omni.contract import errors, names
from omni.contract.chunk import TextDelta
from omni.contract.errors import OmniError
from omni.contract.handover import Handover, pack_handover, unpack_handover
from omni.contract.job import Job, unpack_job
from omni.contract.params import Settings

Tensors = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor as a `config.pbtxt` declares it; -1 is a free dimension."""

    name: str
    datatype: str
    """Triton's name without the TYPE_ prefix of the configuration: STRING, UINT8, INT16, INT32, BOOL."""
    dims: tuple[int, ...]
    meaning: str


JOB = Tensor("JOB", "STRING", (1,), "The conversation, JSON of `pack_job`.")
MEDIA = Tensor("MEDIA", "UINT8", (-1,), "All encoded media of the job behind each other, or the next piece of that.")
PIECE = Tensor("PIECE", "INT32", (1,), "Number of this piece of MEDIA, from 0. A job in one request has none.")
CONTROL = Tensor("CONTROL", "STRING", (1,), "A direct request to a stage, outside of any ensemble: JSON of `Control`.")
TEXT = Tensor("TEXT", "STRING", (1,), "The next piece of text, JSON of `TextDelta`.")
HANDOVER = Tensor("HANDOVER", "STRING", (1,), "What one stage tells the next about the prompt, JSON.")
ARRAYS = Tensor("ARRAYS", "UINT8", (-1,), "The arrays that go with HANDOVER.")
TOKENS = Tensor("TOKENS", "INT32", (-1,), "Thinker token ids for the talker [tokens].")
CODES = Tensor("CODES", "INT32", (-1, -1), "Codec frames [frames, code groups].")
AUDIO = Tensor("AUDIO", "INT16", (-1,), "Speech [samples], 24 kHz mono.")
EVENT = Tensor("EVENT", "STRING", (1,), "News that is neither text nor sound, JSON.")
ERR = Tensor("ERR", "STRING", (1,), "A typed failure, JSON {code, message, param, stage}; comes with EOS.")
SEQ = Tensor("SEQ", "INT32", (1,), "Number of this message on its edge, from 0.")
EOS = Tensor("EOS", "BOOL", (1,), "True on the last message of a generation.")

_ALWAYS: Final = (EVENT, ERR, SEQ, EOS)
PASS_THROUGH: Final = (TEXT, EVENT)
"""Tensors that a later stage hands on before it looks at anything else."""

OUTPUTS: Mapping[str, tuple[Tensor, ...]] = {
    names.PREPROCESS: (HANDOVER, ARRAYS, *_ALWAYS),
    names.THINKER: (TEXT, HANDOVER, ARRAYS, TOKENS, *_ALWAYS),
    names.TALKER: (TEXT, CODES, *_ALWAYS),
    names.CODE2WAV: (TEXT, AUDIO, *_ALWAYS),
}
"""By stage, what it sends."""

INPUTS: Mapping[str, tuple[Tensor, ...]] = {
    names.PREPROCESS: (JOB, MEDIA, PIECE, CONTROL),
    names.THINKER: (*OUTPUTS[names.PREPROCESS], CONTROL),
    names.TALKER: (*OUTPUTS[names.THINKER], CONTROL),
    names.CODE2WAV: (*OUTPUTS[names.TALKER], CONTROL),
}
"""By stage, what it takes. All are optional in the configuration: no message carries all of them."""

ENSEMBLE_INPUTS: Final = (JOB, MEDIA, PIECE)
"""A job is one request with JOB and MEDIA; or several of one id, each with PIECE and its piece of MEDIA, the first with
JOB too. All are optional in the configuration."""
ENSEMBLE_OUTPUTS: Mapping[str, tuple[Tensor, ...]] = {
    names.OMNI: OUTPUTS[names.CODE2WAV],
    names.OMNI_TEXT: (TEXT, *_ALWAYS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMessage:
    """One message on an edge, in the terms of the stages."""

    job: Job | None = None
    """What the front door asked for; only preprocess is told, in the one message that it gets."""
    text: TextDelta | None = None
    handover: Handover | None = None
    tokens: npt.NDArray[np.int32] | None = None
    """Thinker token ids [tokens]."""
    codes: npt.NDArray[np.int32] | None = None
    """Codec frames [frames, code groups]."""
    audio: npt.NDArray[np.int16] | None = None
    """Speech [samples]."""
    event: Mapping[str, Any] | None = None
    error: OmniError | None = None
    seq: int = 0
    eos: bool = False

    @property
    def empty(self) -> bool:
        """Whether the message says nothing at all."""
        parts = (self.job, self.text, self.handover, self.tokens, self.codes, self.audio, self.event, self.error)
        return not self.eos and all(part is None for part in parts)

    @property
    def passed_through(self) -> StageMessage | None:
        """What a later stage forwards at once: text and news; None when there is neither."""
        if self.text is None and self.event is None:
            return None
        return StageMessage(text=self.text, event=self.event)

    def __add__(self, later: StageMessage) -> StageMessage:
        """Both messages as one. Raises ValueError when `joins` says that they can't be."""
        if not self.joins(later):
            raise ValueError("these messages must stay apart")

        def both(a: Any, b: Any) -> Any:
            return a if b is None else b if a is None else np.concatenate((a, b))

        return replace(
            self,
            text=later.text if self.text is None else self.text if later.text is None else self.text + later.text,
            handover=self.handover or later.handover,
            tokens=both(self.tokens, later.tokens),
            codes=both(self.codes, later.codes),
            audio=both(self.audio, later.audio),
            event=self.event or later.event,
            error=self.error or later.error,
            eos=later.eos,
        )

    def joins(self, later: StageMessage) -> bool:
        """Whether `later` may be merged into this one: nothing follows an end, and there is room for one of a kind."""
        return not (
            self.eos
            or (self.handover is not None and later.handover is not None)
            or (self.event is not None and later.event is not None)
        )


def string(data: bytes) -> npt.NDArray[np.object_]:
    """A STRING tensor of one element."""
    return np.array([data], dtype=np.object_)


def string_of(array: npt.NDArray[Any]) -> bytes:
    """The one element of a STRING tensor."""
    value = array.reshape(-1)[0]
    return value if isinstance(value, bytes) else str(value).encode()


def pack(stage: str, message: StageMessage) -> Tensors:
    """The tensors of a message that `stage` sends. Raises KeyError when the edge has no place for a part of it."""
    out: Tensors = {SEQ.name: np.array([message.seq], np.int32)}
    if message.text is not None:
        out[TEXT.name] = string(message.text.dumps())
    if message.handover is not None:
        head, arrays = pack_handover(message.handover)
        out[HANDOVER.name], out[ARRAYS.name] = string(head), arrays
    if message.tokens is not None:
        out[TOKENS.name] = np.ascontiguousarray(message.tokens, np.int32)
    if message.codes is not None:
        out[CODES.name] = np.ascontiguousarray(message.codes, np.int32)
    if message.audio is not None:
        out[AUDIO.name] = np.ascontiguousarray(message.audio, np.int16)
    if message.event is not None:
        out[EVENT.name] = string(json.dumps(message.event, separators=(",", ":")).encode())
    if message.error is not None:
        out[ERR.name] = string(json.dumps(message.error.to_json(), separators=(",", ":")).encode())
    if message.eos:
        out[EOS.name] = np.array([True])
    allowed = {tensor.name for tensor in OUTPUTS[stage]}
    if extra := out.keys() - allowed:
        raise KeyError(f"{stage} has no output {', '.join(sorted(extra))}")
    return out


def unpack_request(id: str, tensors: Mapping[str, npt.NDArray[Any]], settings: Settings) -> StageMessage:
    """A job in one request, and that nothing follows. Raises `InvalidRequest` when it can't be read."""
    if (job := tensors.get(JOB.name)) is None:
        raise errors.InvalidRequest("The request carries no job.", param=JOB.name)
    return StageMessage(job=unpack_job(id, string_of(job), tensors.get(MEDIA.name), settings), eos=True)


def seq_of(tensors: Mapping[str, npt.NDArray[Any]], number: Tensor = SEQ) -> int:
    """The number of a message on its edge, or of a piece by `PIECE`; -1 when it has none that can be read."""
    seq = tensors.get(number.name)
    try:
        return -1 if seq is None else int(seq.reshape(-1)[0])
    except errors.UNREADABLE:
        return -1


def unpack(tensors: Mapping[str, npt.NDArray[Any]]) -> StageMessage:
    """The inverse of `pack`. Raises `OmniError` when a tensor doesn't hold what its name promises."""
    try:
        get = tensors.get
        text, head, arrays, event, error = get("TEXT"), get("HANDOVER"), get("ARRAYS"), get("EVENT"), get("ERR")
        seq, eos = get("SEQ"), get("EOS")
        handover = None
        if head is not None:
            handover = unpack_handover(string_of(head), arrays if arrays is not None else np.empty(0, np.uint8))
        return StageMessage(
            text=None if text is None else TextDelta.loads(string_of(text)),
            handover=handover,
            tokens=get("TOKENS"),
            codes=get("CODES"),
            audio=get("AUDIO"),
            event=None if event is None else dict(json.loads(string_of(event))),
            error=None if error is None else errors.from_json(json.loads(string_of(error))),
            seq=0 if seq is None else int(seq.reshape(-1)[0]),
            eos=eos is not None and bool(eos.reshape(-1)[0]),
        )
    except errors.UNREADABLE:
        raise OmniError("A message between stages can't be read.") from None


@dataclass(frozen=True, slots=True)
class Control:
    """A direct request to one stage. A client that wants to stop a generation tells every stage.

    `lease` is held open, after an EVENT of type `leased`; when its stream dies, every generation that was started on it
    is aborted. `abort` ends one generation at once, also when the stage has yet to hear of it. `ping` is answered.
    """

    op: str
    id: str = ""
    """The lease's name, or the generation to abort."""

    def dumps(self) -> bytes:
        return json.dumps({"op": self.op, "id": self.id}).encode()

    @classmethod
    def loads(cls, data: bytes) -> Control:
        """Raises `InvalidRequest` when `data` isn't a control request."""
        try:
            body = json.loads(data)
            op, id = body["op"], body.get("id", "")
        except errors.UNREADABLE:
            op, id = None, ""
        if op not in ("lease", "abort", "ping") or not isinstance(id, str):
            raise errors.InvalidRequest("CONTROL must name an operation: lease, abort or ping.", param="CONTROL")
        return Control(op, id)
