"""`session.config`: what a client may set for its streaming video session.

Values are read as leniently as the protocol's first server read them: a number may be a string of digits, a flag may be
"yes". Unknown fields are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from frontend.protocol.video_sampling import sampling
from omni.contract.errors import InvalidRequest
from omni.contract.params import SamplingParams

Sampling = Literal["stride", "uniform"]
AudioFormat = Literal["wav", "pcm16"]

ALIASES: Final[Mapping[str, str]] = {
    "num_sample_frames": "num_frames",
    "evs_enabled": "enable_frame_filter",
    "evs_threshold": "frame_filter_threshold",
}
"""Former names; where both are given, the present one counts."""

MODALITIES: Final = ("text", "audio")
MAX_DIGITS: Final = 32
"""Characters of a string that may stand for a number."""

_TRUE: Final = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "off", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How a session is answered. `speech` and `text` say what the client is sent."""

    text: bool = True
    speech: bool = True
    num_frames: int = 4
    """Frames per query when the prompt isn't prefilled; 1 to 128."""
    max_frames: int = 50
    """Frames that are held; 1 to 256."""
    system_prompt: str | None = None
    use_audio_in_video: bool = True
    """Accepted and without effect: frames are images, and a question's sound follows them."""
    sampling: Mapping[str, SamplingParams] = field(default_factory=dict)
    """By stage; a stage that isn't here samples as the deployment does."""
    sampling_problem: InvalidRequest | None = None
    """What is wrong with the sampling parameters; a query that needs them fails by it."""
    enable_frame_filter: bool = True
    frame_filter_threshold: float = 0.95
    """Similarity at which a frame is a near-duplicate, 0 to 1."""
    frame_sampling: Sampling = "stride"
    voice: str | None = None
    audio_format: AudioFormat = "wav"


def parse(event: Mapping[str, Any], *, voices: Sequence[str], speech: bool, max_text: int) -> SessionConfig:
    """The configuration in a `session.config` event.

    `voices` are those that there are, `speech` is whether there is a talker at all, `max_text` bounds the characters of
    the system prompt. Raises `InvalidRequest` for a value that a field can't have; the message never repeats it.
    """
    fields = {ALIASES[name]: value for name, value in event.items() if name in ALIASES}
    fields |= {name: value for name, value in event.items() if name not in ALIASES}
    values: dict[str, Any] = {name: read(name, fields[name]) for name, read in _FIELDS.items() if name in fields}
    values.pop("model", None)
    modalities = values.pop("modalities", None)
    if modalities and "audio" in modalities and not speech:
        raise InvalidRequest("modalities can't hold audio: this server doesn't speak")
    prompt, voice = values.get("system_prompt"), values.get("voice")
    if prompt is not None and len(prompt) > max_text:
        raise InvalidRequest(f"system_prompt must have at most {max_text} characters")
    if voice is not None and voice not in voices:
        raise InvalidRequest(f"voice must be one of {', '.join(voices)}" if voices else "voice can't be chosen here")
    entries = values.pop("sampling_params_list", ())
    try:
        values["sampling"] = sampling(entries)
    except InvalidRequest as problem:
        values["sampling_problem"] = problem
    wanted = modalities or MODALITIES
    return SessionConfig(text="text" in wanted, speech=speech and "audio" in wanted, **values)


def _string(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidRequest(f"{name} must be a string or null")


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, str) and len(value) <= MAX_DIGITS:
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    elif isinstance(value, (bool, int, float)) and value in (0, 1):
        return bool(value)
    raise InvalidRequest(f"{name} must be true or false")


def _number(name: str, value: Any) -> float:
    """A finite number. Raises `InvalidRequest`."""
    if isinstance(value, str) and len(value) <= MAX_DIGITS:
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    raise InvalidRequest(f"{name} must be a number")


def _whole(low: int, high: int) -> Any:
    def read(name: str, value: Any) -> int:
        number = _number(name, value)
        if number != int(number) or not low <= number <= high:
            raise InvalidRequest(f"{name} must be an integer between {low} and {high}")
        return int(number)

    return read


def _share(name: str, value: Any) -> float:
    number = _number(name, value)
    if not 0 <= number <= 1:
        raise InvalidRequest(f"{name} must be between 0 and 1")
    return number


def _choice(*options: str) -> Any:
    def read(name: str, value: Any) -> str:
        if value not in options:
            raise InvalidRequest(f"{name} must be {' or '.join(options)}")
        return str(value)

    return read


def _modalities(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one in MODALITIES for one in value):
        raise InvalidRequest(f"{name} must be a list of {' and '.join(MODALITIES)}")
    return value


def _dicts(name: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidRequest(f"{name} must be a list of objects or null")
    return tuple(value)


_FIELDS: Final[Mapping[str, Any]] = {
    "model": _string,
    "modalities": _modalities,
    "num_frames": _whole(1, 128),
    "max_frames": _whole(1, 256),
    "system_prompt": _string,
    "use_audio_in_video": _flag,
    "sampling_params_list": _dicts,
    "enable_frame_filter": _flag,
    "frame_filter_threshold": _share,
    "frame_sampling": _choice("stride", "uniform"),
    "voice": _string,
    "audio_format": _choice("wav", "pcm16"),
}
"""By field, what reads it; a field that isn't here is ignored."""
