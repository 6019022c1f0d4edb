"""What a realtime session is set to: how it hears, when it answers and how it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from frontend.protocol.fields import BadEvent, Fields
from omni.contract.errors import InvalidRequest
from omni.contract.names import SAMPLE_RATE, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings

Codec = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
TELEPHONE_RATE: Final = 8_000
PCM_RATES: Final = (SAMPLE_RATE, 16_000)

OPENAI_VOICES: Final = frozenset(
    {"alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse", "marin", "cedar"}
)
"""Voices that stock clients ask for by default; here they stand for the deployment's first voice."""


@dataclass(frozen=True, slots=True)
class Format:
    """Mono sound on the wire: signed 16-bit little-endian samples, or G.711."""

    codec: Codec = "audio/pcm"
    rate: int = SAMPLE_RATE
    """Hertz."""

    def to_json(self) -> dict[str, Any]:
        return {"type": self.codec, "rate": self.rate} if self.codec == "audio/pcm" else {"type": self.codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """When the user's turn begins and ends."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    idle_timeout_ms: int | None = None
    eagerness: str = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    def to_json(self) -> dict[str, Any]:
        shared = {"create_response": self.create_response, "interrupt_response": self.interrupt_response}
        if self.type == "semantic_vad":
            return {"type": self.type, "eagerness": self.eagerness, **shared}
        own = {
            "threshold": self.threshold,
            "prefix_padding_ms": self.prefix_padding_ms,
            "silence_duration_ms": self.silence_duration_ms,
            "idle_timeout_ms": self.idle_timeout_ms,
        }
        return {"type": self.type, **own, **shared}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """That the user's speech is to be written down, and hints for it."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "language": self.language, "prompt": self.prompt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the deployment offers a session."""

    models: tuple[str, ...]
    """Names that clients may use, the main one first."""
    voices: tuple[str, ...] = ()
    speech: bool = True
    instructions_chars: int = 32_768

    def voice(self, asked: str, param: str) -> str | None:
        """The voice as the deployment spells it. Raises `BadEvent`."""
        for voice in self.voices:
            if voice.lower() == asked.lower():
                return voice
        if asked.lower() in OPENAI_VOICES or not self.voices:
            return self.voices[0] if self.voices else None
        raise BadEvent(f"{param} must be one of {', '.join(self.voices)}.", "invalid_value", param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that a client can set. Changes make a new one, so that a refused update leaves nothing behind."""

    model: str
    instructions: str = ""
    speech: bool = True
    voice: str | None = None
    listen: Format = Format()
    speak: Format = Format()
    detection: Detection | None = Detection()
    transcription: Transcription | None = None
    max_output_tokens: int | None = None
    truncation: Literal["auto", "disabled"] = "auto"
    sampling: Mapping[str, SamplingParams] = field(default_factory=dict)
    """By stage; our own extension, and Beta's `temperature`."""
    stage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By stage, the knobs of `STAGE_PARAMS`; our own extension, as in chat."""

    @classmethod
    def default(cls, offer: Offer) -> Config:
        return cls(model=offer.models[0], speech=offer.speech, voice=offer.voices[0] if offer.voices else None)

    def settings(self) -> Settings:
        """How the stages are to answer."""
        thinker = self.sampling.get(THINKER, SamplingParams())
        if self.max_output_tokens is not None:
            thinker = replace(thinker, max_tokens=self.max_output_tokens)
        sampling = {**self.sampling, THINKER: thinker}
        nothing = SamplingParams()
        stage = {name: dict(knobs) for name, knobs in self.stage.items()}
        if self.speech and self.voice is not None:
            stage.setdefault(TALKER, {})["voice"] = self.voice
        return Settings(
            speech=self.speech,
            sampling={stage: params for stage, params in sampling.items() if params != nothing},
            stage=stage,
        )

    def to_json(self) -> dict[str, Any]:
        """The session as OpenAI shows it; `id`, `object` and `expires_at` are the session's own to add."""
        return {
            "type": "realtime",
            "model": self.model,
            "instructions": self.instructions,
            "output_modalities": ["audio"] if self.speech else ["text"],
            "max_output_tokens": "inf" if self.max_output_tokens is None else self.max_output_tokens,
            "tools": [],
            "tool_choice": "auto",
            "truncation": self.truncation,
            "tracing": None,
            "prompt": None,
            "include": None,
            "audio": {
                "input": {
                    "format": self.listen.to_json(),
                    "noise_reduction": None,
                    "transcription": None if self.transcription is None else self.transcription.to_json(),
                    "turn_detection": None if self.detection is None else self.detection.to_json(),
                },
                "output": {"format": self.speak.to_json(), "voice": self.voice, "speed": 1.0},
            },
        }


def updated(config: Config, session: Fields, offer: Offer) -> Config:
    """`config` with the fields of a `session.update` put in. Raises `BadEvent`, for the whole update."""
    session.choice("type", ("realtime",))
    session.skip("id", "object", "expires_at", "include", "tracing", "parallel_tool_calls", "reasoning")
    if (model := session.string("model", most=256)) is not None:
        config = replace(config, model=_model(model, offer, session.at("model")))
    config = _shared(config, session, offer)
    if session.has("truncation"):
        config = replace(config, truncation=_truncation(session))
    if (audio := session.object("audio")) is not None:
        if (heard := audio.object("input")) is not None:
            config = _input(config, heard)
            heard.end()
        config = _output(config, audio, offer)
        audio.end()
    session.end()
    return config


def for_response(config: Config, response: Fields, offer: Offer) -> Config:
    """`config` with what one response overrides. Raises `BadEvent`."""
    response.skip("parallel_tool_calls", "reasoning", "type", "object")
    config = _shared(config, response, offer)
    if (audio := response.object("audio")) is not None:
        config = _output(config, audio, offer)
        audio.end()
    return config


def _shared(config: Config, fields: Fields, offer: Offer) -> Config:
    """What a session and a response have in common."""
    if fields.raw("prompt") is not None:
        raise BadEvent("Prompt templates aren't supported.", "unsupported", fields.at("prompt"))
    if fields.items("tools", most=1 << 16):
        raise BadEvent("Tools aren't supported; leave them out.", "unsupported", fields.at("tools"))
    if fields.raw("tool_choice") not in (None, "auto", "none"):
        raise BadEvent(
            "Tools aren't supported; tool_choice must be auto or none.", "unsupported", fields.at("tool_choice")
        )
    if fields.has("instructions"):
        text = fields.string("instructions", most=offer.instructions_chars)
        config = replace(config, instructions=text or "")
    if fields.has("output_modalities"):
        config = replace(config, speech=_speech(fields, offer))
    if fields.has("max_output_tokens"):
        config = replace(config, max_output_tokens=fields.tokens("max_output_tokens"))
    if (sampling := fields.object("sampling")) is not None:
        config = replace(config, sampling=_sampling(sampling, config.sampling))
    if (knobs := fields.raw("stage_params")) is not None:
        config = replace(config, stage=_knobs(knobs, fields.at("stage_params")))
    return config


def _model(model: str, offer: Offer, param: str) -> str:
    if model not in offer.models:
        raise BadEvent("This server has no such model; GET /v1/models lists what it has.", "model_not_found", param)
    return model


def _speech(fields: Fields, offer: Offer) -> bool:
    param = fields.at("output_modalities")
    asked = fields.items("output_modalities", most=2)
    if asked is None:
        return offer.speech
    if not asked or not all(one in ("text", "audio") for one in asked):
        raise BadEvent(f'{param} must be ["audio"] or ["text"].', "invalid_value", param)
    if "audio" in asked and not offer.speech:
        raise BadEvent("This deployment answers in text only.", "unsupported", param)
    return "audio" in asked


def _truncation(session: Fields) -> Literal["auto", "disabled"]:
    if isinstance(session.raw("truncation"), Mapping):
        return "auto"
    return "disabled" if session.choice("truncation", ("auto", "disabled")) == "disabled" else "auto"


def _input(config: Config, heard: Fields) -> Config:
    heard.skip("noise_reduction")
    if (format := heard.object("format")) is not None:
        config = replace(config, listen=_format(format))
    if heard.has("turn_detection"):
        detection = heard.object("turn_detection")
        config = replace(config, detection=None if detection is None else _detection(detection, config.detection))
    if heard.has("transcription"):
        asked = heard.object("transcription")
        config = replace(config, transcription=None if asked is None else _transcription(asked))
    return config


def _output(config: Config, audio: Fields, offer: Offer) -> Config:
    spoken = audio.object("output")
    if spoken is None:
        return config
    if (format := spoken.object("format")) is not None:
        config = replace(config, speak=_format(format))
    if isinstance(named := spoken.raw("voice"), Mapping):
        config = replace(config, voice=offer.voice(str(named.get("id", "")), spoken.at("voice")))
    elif (voice := spoken.string("voice", most=256)) is not None:
        config = replace(config, voice=offer.voice(voice, spoken.at("voice")))
    if (speed := spoken.number("speed", 0.25, 1.5)) is not None and speed != 1:
        raise BadEvent("Speech has one speed; speed must be 1.", "unsupported", spoken.at("speed"))
    spoken.end()
    return config


def _format(format: Fields) -> Format:
    codec = format.needed("type", format.choice("type", ("audio/pcm", "audio/pcmu", "audio/pcma")))
    rate = format.whole("rate", 1, 1_000_000)
    format.end()
    if codec != "audio/pcm":
        if rate not in (None, TELEPHONE_RATE):
            raise BadEvent(f"{format.at('rate')} must be {TELEPHONE_RATE}.", "invalid_value", format.at("rate"))
        return Format(codec, TELEPHONE_RATE)
    if rate not in (None, *PCM_RATES):
        rates = " or ".join(map(str, PCM_RATES))
        raise BadEvent(f"{format.at('rate')} must be {rates}.", "invalid_value", format.at("rate"))
    return Format(codec, rate or SAMPLE_RATE)


def _detection(asked: Fields, before: Detection | None) -> Detection:
    """Fields that aren't given keep their value while the type stays the same."""
    kind = asked.needed("type", asked.choice("type", ("server_vad", "semantic_vad")))
    known = before if before is not None and before.type == kind else Detection(type=kind)
    values: dict[str, Any] = {
        "threshold": asked.number("threshold", 0, 1),
        "prefix_padding_ms": asked.whole("prefix_padding_ms", 0, 5_000),
        "silence_duration_ms": asked.whole("silence_duration_ms", 0, 10_000),
        "eagerness": asked.choice("eagerness", ("low", "medium", "high", "auto")),
        "create_response": asked.flag("create_response"),
        "interrupt_response": asked.flag("interrupt_response"),
    }
    detection = replace(known, **{name: value for name, value in values.items() if value is not None})
    if asked.has("idle_timeout_ms"):
        detection = replace(detection, idle_timeout_ms=asked.whole("idle_timeout_ms", 1_000, 600_000))
    asked.end()
    return detection


def _transcription(asked: Fields) -> Transcription:
    asked.skip("delay", "keywords", "languages")
    found = Transcription(
        model=asked.string("model", most=256),
        language=asked.string("language", most=32),
        prompt=asked.string("prompt", most=4_096),
    )
    asked.end()
    return found


def _knobs(asked: Any, path: str) -> Mapping[str, Mapping[str, Any]]:
    """Our own extension: other parameters of the stages. The voice has a field of its own."""
    shaped = isinstance(asked, Mapping) and all(isinstance(knobs, Mapping) for knobs in asked.values())
    if not shaped or "voice" in asked.get(TALKER, {}):
        raise BadEvent(f"{path} must map stages to parameters, of which voice is none.", "invalid_value", path)
    try:
        Settings(stage=asked)
    except InvalidRequest as problem:
        raise BadEvent(f"{path}: {problem.message[:200]}", "invalid_value", path) from None
    return {str(stage): dict(knobs) for stage, knobs in asked.items()}


def _sampling(asked: Fields, before: Mapping[str, SamplingParams]) -> Mapping[str, SamplingParams]:
    """Our own extension: sampling parameters by stage."""
    out = dict(before)
    for stage in (THINKER, TALKER):
        if (values := asked.raw(stage)) is not None:
            try:
                out[stage] = SamplingParams.from_json(values).over(out.get(stage, SamplingParams()))
            except InvalidRequest as problem:
                where = asked.at(stage)
                param = where if problem.param is None else f"{where}.{problem.param[:64]}"
                raise BadEvent(problem.message, "invalid_value", param) from None
    asked.end()
    return out
