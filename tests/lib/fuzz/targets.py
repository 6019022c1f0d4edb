"""What is fuzzed: everything that makes sense of bytes from outside of its process.

A target takes the pieces of an input. It lets pass what the code under it is allowed to raise, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
from support.realtime import OFFER, LoudEar
from support.realtime import Talk as RealtimeTalk
from support.video import Talk as VideoTalk

from frontend.media.check import check
from frontend.media.duration import duration
from frontend.media.limits import MediaLimits
from frontend.media.picture import look
from frontend.media.resolve import resolve
from frontend.openai.body import JsonBody
from frontend.openai.requests import ChatRequest, parse
from frontend.openai.speech import SpeechRequest, reading
from frontend.openai.to_job import draft
from frontend.openai.transcription import asked
from frontend.protocol.realtime_config import Format
from frontend.protocol.realtime_dialects import BETA, OPENAI, SGLANG
from frontend.protocol.realtime_limits import Limits as RealtimeLimits
from frontend.protocol.video_deployment import Limits as VideoLimits
from frontend.senses import FrontSenses, Resampled
from omni.contract import tensors
from omni.contract.chunk import TextDelta
from omni.contract.errors import OmniError, StageFailed
from omni.contract.job import MEDIA_KINDS, VideoOptions, pack_job, unpack_job
from omni.contract.names import STAGES, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import Control, StageMessage, Tensors, string
from omni.profile import load_profile
from omni.runtime.generations import Generations, Open, Push
from omni.stages.media.audio import decode_audio
from omni.stages.media.image import decode_image
from omni.stages.media.limits import MediaLimits as DecodingLimits
from omni.stages.media.video import Sampling, decode_video

Pieces = list[bytes]
Target = Callable[[Pieces], None]

PROFILE: Final = load_profile("dummy")
CHECKING: Final = MediaLimits(image_pixels=1 << 20, item_bytes=1 << 16)
DECODING: Final = DecodingLimits(image_pixels=1 << 18, audio_seconds=20, video_seconds=20, video_pixels=1 << 20)
EDGE: Final = ("TEXT", "HANDOVER", "ARRAYS", "TOKENS", "CODES", "AUDIO", "EVENT", "ERR", "SEQ", "EOS")
"""The tensors of one message, one piece each; an empty piece is a tensor that isn't there."""
DIALECTS: Final = ((OPENAI, None), (BETA, None), (SGLANG, None), (OPENAI, False), (OPENAI, True))
"""By the first piece of a realtime conversation: its dialect, and the SGLang profile."""
FILES: Final = (*MEDIA_KINDS, "frame", "duration", "decode image", "decode audio", "decode video")
"""By the first piece of a file: who looks at it."""


def _number(piece: bytes, most: int) -> int:
    return piece[0] % most if piece else 0


# -- between the stages


class _Responder:
    def __init__(self) -> None:
        self.sent: list[bool] = []

    def send(self, tensors: Tensors | None, final: bool) -> None:
        self.sent.append(final)

    def cancelled(self) -> bool:
        return False


def _run(stage: str, settings: str, messages: list[Mapping[str, np.ndarray[Any, Any]]]) -> None:
    """A stage's generation is told `messages`; each request gets its end, and nothing stays open."""
    generations = Generations(stage, ttl_s=1.0)
    responders = [_Responder() for _ in messages]
    for now, (message, responder) in enumerate(zip(messages, responders, strict=True)):
        generations.receive("id", settings, message, responder, now / 100)
        for work in generations.work():
            if isinstance(work, Open):
                work.settings.sampling_of(THINKER, SamplingParams())
            elif isinstance(work, Push):
                generations.produced([(work.id, StageMessage(event={"type": "news"}))])
    generations.reap(1e9)
    generations.fail_all(StageFailed("over"))
    for delivery in generations.outgoing(1e9):
        packed = None if delivery.message is None else tensors.pack(stage, delivery.message)
        delivery.responder.send(packed, delivery.final)
    assert len(generations) == generations.open_requests == 0
    assert all(responder.sent.count(True) == 1 for responder in responders)


def job(pieces: Pieces) -> None:
    """JOB, MEDIA and the settings, as preprocess is sent them; with more, MEDIA is what follows and comes in pieces.

    Each of those has its number before it, one byte.
    """
    data, media, settings, *more = (*pieces, b"", b"", b"")[: max(3, len(pieces))]
    inputs: Tensors = {"JOB": string(data)}
    if media:
        inputs["MEDIA"] = np.frombuffer(media, np.uint8)
    requests = [inputs]
    if more:
        inputs["PIECE"] = np.array([0], np.int32)
    for piece in more:
        number = np.frombuffer(piece[:1], np.int8).astype(np.int32)
        requests.append({"PIECE": number, "MEDIA": np.frombuffer(piece[1:], np.uint8)})
    _run("preprocess", settings.decode(errors="replace"), requests)


def _tensor(name: str, piece: bytes) -> np.ndarray[Any, Any]:
    def numbers(kind: Any) -> np.ndarray[Any, Any]:
        return np.frombuffer(piece[: len(piece) // np.dtype(kind).itemsize * np.dtype(kind).itemsize], kind)

    match name:
        case "ARRAYS":
            return numbers(np.uint8)
        case "TOKENS" | "SEQ":
            return numbers(np.int32)
        case "CODES":
            return numbers(np.int32)[: len(piece) // 64 * 16].reshape(-1, 16)
        case "AUDIO":
            return numbers(np.int16)
        case "EOS":
            return numbers(np.bool_)
        case _:
            return string(piece)


def edge(pieces: Pieces) -> None:
    """The messages of an edge, as the stages behind preprocess are sent them."""
    stage = STAGES[1 + _number(pieces[0], 3)]
    messages = []
    for at in range(1, min(len(pieces), 1 + 8 * len(EDGE)), len(EDGE)):
        named = zip(EDGE, pieces[at : at + len(EDGE)], strict=False)
        messages.append({name: _tensor(name, piece) for name, piece in named if piece})
    _run(stage, "{}", messages)


def control(pieces: Pieces) -> None:
    """Everything else that is JSON between processes."""
    for piece in pieces:
        for read in (Control.loads, TextDelta.loads, lambda data: Settings.loads(data.decode(errors="replace"))):
            with suppress(OmniError):
                read(piece)


# -- media


def media(pieces: Pieces) -> None:
    """A file, which the front door checks or preprocess decodes."""
    who, data = FILES[_number(pieces[0], len(FILES))], b"".join(pieces[1:])
    with suppress(OmniError):
        match who:
            case "frame":
                look(data, True, CHECKING.image_pixels)
            case "duration":
                duration(data, "file")
            case "decode image":
                decode_image(data, DECODING)
            case "decode audio":
                decode_audio(data, DECODING)
            case "decode video":
                decode_video(data, Sampling.of({}).asked(VideoOptions(fps=2, max_frames=4), DECODING), DECODING)
            case _:
                check(who, data, "file", CHECKING)


def sound(pieces: Pieces) -> None:
    """Sound of sessions: G.711 and PCM of any length, and the same again the other way."""
    senses = FrontSenses(CHECKING, exact_alignment=False)
    format = (Format(), Format("audio/pcmu", 8000), Format("audio/pcma", 8000))[_number(pieces[0], 3)]
    encoder = Resampled(format)
    for piece in pieces[1:9]:
        pcm = senses.decode(piece, format)
        encoder.encode(pcm[: len(pcm) // 2 * 2])
    encoder.finish()


# -- HTTP


def _body(data: bytes) -> Any:
    body = JsonBody()
    for at in range(0, len(data), 5000):
        body.feed(data[at : at + 5000])
    return body.finish()


def chat(pieces: Pieces) -> None:
    """The body of a chat request, up to its job, and that job again as preprocess is told it."""
    with suppress(OmniError):
        plan = draft(parse(ChatRequest, _body(b"".join(pieces))), PROFILE)
        parts = asyncio.run(resolve(plan.references, CHECKING)) if plan.references else []
        made = plan.job("id", parts)
        assert unpack_job("id", *pack_job(made), Settings.loads(made.settings.dumps())) == made


def speech(pieces: Pieces) -> None:
    """The body of a request for speech, and the fields of one for a transcript."""
    with suppress(OmniError):
        reading(parse(SpeechRequest, _body(pieces[0])), PROFILE, ("qwen3-omni",), 4096).job("id")
    texts = [piece.decode(errors="replace") for piece in pieces[1:]]
    form: dict[str, list[str]] = {}
    for name, value in zip(texts[::2], texts[1::2], strict=False):
        form.setdefault(name, []).append(value)
    with suppress(OmniError):
        asked(form, ("qwen3-omni",))


# -- sessions


class _Senses(FrontSenses):
    """The real ones, with an ear that is quick."""

    def __init__(self) -> None:
        super().__init__(CHECKING, exact_alignment=False)

    def ear(self, rate: int) -> Any:
        return LoudEar(rate)


def _message(piece: bytes) -> str | bytes:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return piece


def realtime(pieces: Pieces) -> None:
    """The messages of a realtime conversation, in every dialect; after each, its answers go on a little."""
    dialect, profile = DIALECTS[_number(pieces[0], len(DIALECTS))]
    limits = RealtimeLimits(items=6, chars=500, media_bytes=100_000, image_bytes=50_000, buffer_s=3, turn_s=2, frames=2)
    talk = RealtimeTalk(limits, dialect, OFFER, check=False, profile=profile, senses=_Senses())
    for number, piece in enumerate(pieces[1:13]):
        talk.now += 0.5
        talk.say_raw(_message(piece))
        if talk.live and number % 2:
            talk.feed("word ")
        if talk.live and number % 3 == 2:
            talk.end(StageFailed("x") if number % 2 else None)
    talk.wait(5.0)
    while talk.live:
        talk.end()
    if talk.closed is None:
        talk.session.lost(talk.now)


def video(pieces: Pieces) -> None:
    """The messages of a video session."""
    limits = VideoLimits(frame_chars=50_000, frames_bytes=60_000, audio_bytes=20_000, text_chars=1000)
    talk = VideoTalk(limits, look=partial(look, max_pixels=CHECKING.image_pixels), prefill=len(pieces) % 2 == 0)
    for number, piece in enumerate(pieces[:12]):
        talk.now += 0.5
        talk.raw(_message(piece))
        if number % 2:
            talk.look()
        if talk.running and number % 2:
            talk.chunk("word ", audio=bytes(200))
        if talk.running and number % 3 == 2:
            talk.end(StageFailed("x") if number % 2 else None)
    talk.look()
    while talk.running:
        talk.answer()
        talk.look()
    talk.wait(100.0)
    talk.lose()


TARGETS: Final[Mapping[str, Target]] = {
    "job": job, "edge": edge, "control": control, "media": media, "sound": sound, "chat": chat, "speech": speech,
    "realtime": realtime, "video": video,
}  # fmt: skip
"""By name; the order is part of the inputs."""
