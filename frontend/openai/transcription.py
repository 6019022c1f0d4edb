"""Transcriptions: what a form asks for, the job that writes down a sound, and what its answer looks like. Pure."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from frontend.openai.from_chunks import DONE, event, json_bytes
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import InvalidRequest, NotSupported, UnknownModel
from omni.contract.job import Job, MediaPart, Message, TextPart
from omni.contract.names import THINKER
from omni.contract.params import MAX_TOKENS_LIMIT, SamplingParams, Settings

Format = Literal["json", "text", "verbose_json"]
FORMATS: Final[tuple[Format, ...]] = ("json", "text", "verbose_json")
_TIMED: Final = frozenset({"srt", "vtt", "diarized_json"})

PROMPT_CHARS: Final = 4096
"""Longest `prompt`."""
TOKENS_PER_SECOND: Final = 8
"""More than anybody speaks: the answer to a sound gets room for so many tokens."""
LEAST_TOKENS: Final = 256

LANGUAGES: Final[Mapping[str, str]] = {
    "ar": "Arabic", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "ms": "Malay", "nl": "Dutch", "pt": "Portuguese",
    "ru": "Russian", "th": "Thai", "tr": "Turkish", "ur": "Urdu", "vi": "Vietnamese", "yue": "Cantonese",
    "zh": "Chinese",
}  # fmt: skip
"""Names for the model, by ISO 639 code; another code is passed on as it is."""
_CODE: Final = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a form asks for."""

    format: Format = "json"
    stream: bool = False
    language: str | None = None
    """ISO 639 code."""
    prompt: str = ""
    temperature: float = 0.0
    logprobs: bool = False

    def job(self, id: str, sound: MediaPart, seconds: float) -> Job:
        """`seconds` is the length of the sound."""
        tokens = min(MAX_TOKENS_LIMIT, max(LEAST_TOKENS, math.ceil(seconds * TOKENS_PER_SECOND)))
        wants = 0 if self.logprobs or self.format == "verbose_json" else None
        sampling = SamplingParams(temperature=self.temperature, max_tokens=tokens, logprobs=wants)
        message = Message("user", (sound, TextPart(self._request())))
        return Job(id=id, messages=(message,), settings=Settings(sampling={THINKER: sampling}))

    def _request(self) -> str:
        words = ["Transcribe the speech word for word. Write nothing else."]
        if self.language is not None:
            words.append(f"The language is {LANGUAGES.get(self.language.lower(), self.language)}.")
        if self.prompt:
            words.append(f"The transcript goes on in the style of this text: {self.prompt}")
        return " ".join(words)


def asked(fields: Mapping[str, Sequence[str]], models: Sequence[str]) -> Asked:
    """What `fields`, the texts of a form by their names, ask for. Unknown fields are ignored.

    Raises `InvalidRequest`, `NotSupported` or `UnknownModel`.
    """

    def one(name: str, default: str = "") -> str:
        return fields[name][-1] if fields.get(name) else default

    if (model := one("model")) and model not in models:
        raise UnknownModel("This server has no such model; GET /v1/models lists what it has.", param="model")
    format = one("response_format", "json")
    if format in _TIMED:
        raise NotSupported("The model doesn't tell times; response_format may be json, text or verbose_json.",
                           param="response_format")  # fmt: skip
    if format not in FORMATS:
        raise InvalidRequest(f"response_format must be one of {', '.join(FORMATS)}.", param="response_format")
    if "word" in (*fields.get("timestamp_granularities[]", ()), *fields.get("timestamp_granularities", ())):
        raise NotSupported("The model doesn't tell the times of words.", param="timestamp_granularities")
    language = one("language") or None
    if language is not None and not _CODE.fullmatch(language):
        raise InvalidRequest("language must be an ISO 639 code, such as en.", param="language")
    prompt = one("prompt")
    if len(prompt) > PROMPT_CHARS:
        raise InvalidRequest(f"prompt may have {PROMPT_CHARS} characters.", param="prompt")
    include = (*fields.get("include[]", ()), *fields.get("include", ()))
    return Asked(
        format=format,
        stream=_flag(one("stream"), "stream"),
        language=language,
        prompt=prompt,
        temperature=_temperature(one("temperature", "0")),
        logprobs="logprobs" in include,
    )


def _flag(text: str, param: str) -> bool:
    if text.lower() not in ("", "true", "false", "1", "0"):
        raise InvalidRequest(f"{param} must be true or false.", param=param)
    return text.lower() in ("true", "1")


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidRequest("temperature must be a number.", param="temperature") from None
    SamplingParams(temperature=value)  # which knows the range
    return value


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as the audio endpoints have it."""
    return {
        "type": "tokens",
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "input_token_details": {
            "audio_tokens": usage.audio_tokens,
            "text_tokens": usage.prompt_tokens - usage.audio_tokens,
        },
    }


class Transcript:
    """An `Answer`: the transcript whole, or as events.

    A stream is `transcript.text.delta` events, then one `transcript.text.done`.
    """

    slow_sound = False
    slow_end = False

    def __init__(self, asked: Asked, seconds: float) -> None:
        self._asked = asked
        self._seconds = seconds
        self._text: list[str] = []
        self._logprobs: list[Mapping[str, Any]] = []
        self._usage = Usage()

    def feed(self, chunk: Chunk) -> bytes:
        self._text.append(chunk.text)
        self._logprobs.extend(chunk.logprobs)
        self._usage = chunk.usage or self._usage
        if not self._asked.stream or not (chunk.text or chunk.logprobs):
            return b""
        body = {"type": "transcript.text.delta", "delta": chunk.text}
        return event(body | self._scores(chunk.logprobs))

    def finish(self) -> bytes:
        text = "".join(self._text)
        body = {"text": text, "usage": usage_object(self._usage), **self._scores(self._logprobs)}
        if self._asked.stream:
            return event({"type": "transcript.text.done", **body}) + DONE
        if self._asked.format == "text":
            return text.encode("utf-8", "replace") + b"\n"
        return json_bytes(self._verbose(text) if self._asked.format == "verbose_json" else body)

    def _scores(self, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not self._asked.logprobs:
            return {}
        return {"logprobs": [{name: one[name] for name in ("token", "logprob", "bytes")} for one in logprobs]}

    def _verbose(self, text: str) -> dict[str, Any]:
        """With one segment, since the model tells no times."""
        values = [float(one["logprob"]) for one in self._logprobs]
        raw = text.encode("utf-8", "replace")
        segment = {
            "id": 0,
            "seek": 0,
            "start": 0.0,
            "end": self._seconds,
            "text": text,
            "tokens": [],
            "temperature": self._asked.temperature,
            "avg_logprob": sum(values) / len(values) if values else 0.0,
            "compression_ratio": len(raw) / len(zlib.compress(raw)),
            "no_speech_prob": 0.0,
        }
        language = (self._asked.language or "").lower()
        return {
            "task": "transcribe",
            "language": LANGUAGES.get(language, language or "unknown").lower(),
            "duration": self._seconds,
            "text": text,
            "segments": [segment] if text else [],
            "usage": {"type": "duration", "seconds": self._seconds},
        }
