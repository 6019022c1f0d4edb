"""Sampling and stage parameters: defined once, checked where they are made, read by every stage.

A field that is None means "the deployment's own": a profile gives each stage its defaults, and a stage fills the
holes with `SamplingParams.over`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, Self
from urllib.parse import unquote

from omni.contract.errors import UNREADABLE, InvalidRequest
from omni.contract.names import CODE2WAV, TALKER, THINKER

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_TOKENS_LIMIT = 1 << 20
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_BIAS = 1024

_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (-1, 1 << 20),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "max_tokens": (1, MAX_TOKENS_LIMIT),
    "min_tokens": (0, MAX_TOKENS_LIMIT),
    "seed": (-(1 << 63), (1 << 64) - 1),
    "logprobs": (0, MAX_TOP_LOGPROBS),
}
_WHOLE = {"top_k", "max_tokens", "min_tokens", "seed", "logprobs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one autoregressive stage picks its tokens. Raises `InvalidRequest` naming the field that is out of range."""

    temperature: float | None = None
    """0 is greedy; up to 2."""
    top_p: float | None = None
    """Nucleus mass, over 0 up to 1."""
    top_k: int | None = None
    """Candidates kept; -1 or 0 keeps all."""
    min_p: float | None = None
    """Least probability relative to the likeliest token, 0 to 1."""
    repetition_penalty: float | None = None
    """Over 0 up to 10; 1 is none."""
    frequency_penalty: float | None = None
    """-2 to 2."""
    presence_penalty: float | None = None
    """-2 to 2."""
    max_tokens: int | None = None
    """Most tokens to generate, at least 1. For the talker a token is a codec frame."""
    min_tokens: int | None = None
    """Tokens before an end or a stop string counts."""
    stop: tuple[str, ...] | None = None
    """Strings that end the answer; they aren't part of it."""
    seed: int | None = None
    """Same seed, same request, same answer, whatever else is being served."""
    ignore_eos: bool | None = None
    """Go on to `max_tokens` although the model wants to end."""
    logit_bias: Mapping[int, float] | None = None
    """Token id to a value added to its logit, -100 to 100."""
    logprobs: int | None = None
    """Alternatives reported per token; None reports nothing, 0 the chosen token alone."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if name in _WHOLE else (int, float)):
                raise InvalidRequest(f"{name} must be {'an integer' if name in _WHOLE else 'a number'}.", param=name)
            if not math.isfinite(value) or not low <= value <= high or (name == "top_p" and value == 0):
                raise InvalidRequest(f"{name} must be between {low} and {high}.", param=name)
        if self.ignore_eos is not None and not isinstance(self.ignore_eos, bool):
            raise InvalidRequest("ignore_eos must be true or false.", param="ignore_eos")
        if self.stop is not None:
            self._check_stop(self.stop)
        if self.logit_bias is not None:
            self._check_bias(self.logit_bias)

    @staticmethod
    def _check_stop(stop: Any) -> None:
        if not isinstance(stop, tuple) or not all(isinstance(one, str) and one for one in stop):
            raise InvalidRequest("stop must be a string or a list of strings that aren't empty.", param="stop")
        if len(stop) > MAX_STOP_STRINGS or any(len(one) > MAX_STOP_LENGTH for one in stop):
            raise InvalidRequest(
                f"stop may hold {MAX_STOP_STRINGS} strings of {MAX_STOP_LENGTH} characters at most.", param="stop"
            )

    @staticmethod
    def _check_bias(bias: Any) -> None:
        if not isinstance(bias, Mapping) or len(bias) > MAX_LOGIT_BIAS:
            raise InvalidRequest(f"logit_bias must be a map of at most {MAX_LOGIT_BIAS} tokens.", param="logit_bias")
        for token, value in bias.items():
            if (
                not isinstance(token, int)
                or token < 0
                or not isinstance(value, (int, float))
                or not -100 <= value <= 100
            ):
                raise InvalidRequest("logit_bias maps token ids to numbers between -100 and 100.", param="logit_bias")

    def over(self, defaults: SamplingParams) -> SamplingParams:
        """These parameters, with every hole filled from `defaults`."""
        return replace(defaults, **{f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None})

    def to_json(self) -> dict[str, Any]:
        out = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}
        if self.logit_bias is not None:
            out["logit_bias"] = {str(token): value for token, value in self.logit_bias.items()}
        return out

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises `InvalidRequest` for an unknown field, a wrong type or a value out of range."""
        if not isinstance(data, Mapping):
            raise InvalidRequest("Sampling parameters must be an object.")
        known = {f.name for f in fields(cls)}
        values = dict(data)
        for name in values:
            if name not in known:
                raise InvalidRequest(f"{name} is not a sampling parameter.", param=str(name))
        if isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        elif isinstance(values.get("stop"), list):
            values["stop"] = tuple(values["stop"])
        if isinstance(bias := values.get("logit_bias"), Mapping):
            try:
                values["logit_bias"] = {int(token): value for token, value in bias.items()}
            except (TypeError, ValueError):
                raise InvalidRequest("logit_bias must be keyed by token ids.", param="logit_bias") from None
        return cls(**values)


THINKER_DEFAULTS = SamplingParams(
    temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=1.0, frequency_penalty=0.0,
    presence_penalty=0.0, max_tokens=2048, min_tokens=0, stop=(), ignore_eos=False, logit_bias={},
)  # fmt: skip
"""What the thinker does when neither the request nor the profile says otherwise."""

TALKER_DEFAULTS = SamplingParams(
    temperature=0.9, top_p=1.0, top_k=50, min_p=0.0, repetition_penalty=1.05, frequency_penalty=0.0,
    presence_penalty=0.0, max_tokens=4096, min_tokens=0, stop=(), ignore_eos=False, logit_bias={},
)  # fmt: skip
"""What the talker does when neither the request nor the profile says otherwise."""


@dataclass(frozen=True, slots=True)
class StageParam:
    """A knob of a stage that isn't sampling: its type, range and meaning."""

    type: type
    meaning: str
    low: float = -math.inf
    high: float = math.inf

    def check(self, name: str, value: Any) -> Any:
        """`value` in the parameter's type. Raises `InvalidRequest`."""
        wrong = isinstance(value, bool) and self.type is not bool
        if self.type is float and isinstance(value, int) and not wrong:
            value = float(value)
        if wrong or not isinstance(value, self.type):
            raise InvalidRequest(f"{name} must be of type {self.type.__name__}.", param=name)
        if isinstance(value, (int, float)) and not self.low <= value <= self.high:
            raise InvalidRequest(f"{name} must be between {self.low} and {self.high}.", param=name)
        return value


STAGE_PARAMS: Mapping[str, Mapping[str, StageParam]] = {
    THINKER: {"token_interval_ms": StageParam(float, "Least time between two tokens (dummy stages only).", 0, 60_000)},
    TALKER: {"voice": StageParam(str, "Name of the voice that speaks the answer.")},
    CODE2WAV: {
        "chunk_delay_ms": StageParam(float, "Extra time that each chunk takes (dummy stages only).", 0, 60_000),
        "max_chunk_frames": StageParam(int, "Most codec frames per chunk of speech once the chunk ramp is up.", 1, 250),
    },
}
"""Every knob of every stage; a key that isn't here is refused. Defaults are the profile's."""

SAMPLED_STAGES = (THINKER, TALKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a generation tells its stages; it travels as one request parameter and so reaches each of them."""

    speech: bool = False
    """Whether the talker and code2wav speak the answer."""
    sampling: Mapping[str, SamplingParams] = field(default_factory=dict)
    """By stage; a stage that isn't here samples as the deployment does."""
    stage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By stage, the knobs of `STAGE_PARAMS`."""
    lease: str | None = None
    """Name of the lease that this generation lives on: when the lease ends, so does the generation."""
    prefill: bool = False
    """Only warm the prefix: compute and keep the prompt's state, generate nothing."""
    session: str | None = None
    """Name of the conversation, a hint for prefix reuse."""
    trace: str | None = None
    """W3C `traceparent` of the span that the stages' spans belong to; None when this generation isn't traced."""

    def __post_init__(self) -> None:
        for name in ("lease", "session", "trace"):
            if not isinstance(getattr(self, name), (str, NoneType)):
                raise InvalidRequest(f"{name} must be a string.", param=name)
        for name in self.sampling:
            if name not in SAMPLED_STAGES:
                raise InvalidRequest(f"{name} is not a stage that samples.", param=name)
        for name, knobs in self.stage.items():
            for key, value in knobs.items():
                if (spec := STAGE_PARAMS.get(name, {}).get(key)) is None:
                    raise InvalidRequest(f"{name}.{key} is not a stage parameter.", param=f"{name}.{key}")
                spec.check(f"{name}.{key}", value)

    def sampling_of(self, stage: str, defaults: SamplingParams) -> SamplingParams:
        """The sampling parameters of `stage`, complete."""
        own = self.sampling.get(stage)
        return defaults if own is None else own.over(defaults)

    def knob(self, stage: str, key: str, default: Any) -> Any:
        """The value of one stage parameter, or `default` when the request doesn't set it."""
        return self.stage.get(stage, {}).get(key, default)

    def dumps(self) -> str:
        return json.dumps(
            {
                "speech": self.speech,
                "sampling": {name: params.to_json() for name, params in self.sampling.items()},
                "stage": {name: dict(knobs) for name, knobs in self.stage.items()},
                "lease": self.lease,
                "prefill": self.prefill,
                "session": self.session,
                **({} if self.trace is None else {"trace": self.trace}),
            },
            separators=(",", ":"),
        )

    @classmethod
    def loads(cls, text: str) -> Settings:
        """Raises `InvalidRequest` when `text` isn't a `Settings`.

        It may be percent-encoded, for clients such as perf_analyzer, whose parameters can't hold a colon.
        """
        try:
            data = json.loads(unquote(text) if text.startswith("%7B") else text or "{}")
            return cls(
                speech=bool(data.get("speech", False)),
                sampling={name: SamplingParams.from_json(one) for name, one in data.get("sampling", {}).items()},
                stage={name: dict(knobs) for name, knobs in data.get("stage", {}).items()},
                lease=data.get("lease"),
                prefill=bool(data.get("prefill", False)),
                session=data.get("session"),
                trace=data.get("trace"),
            )
        except UNREADABLE:
            raise InvalidRequest("The settings of the request can't be read.", param="settings") from None
