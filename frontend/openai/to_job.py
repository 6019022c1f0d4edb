"""From a chat request to a job. Pure: media stay as the client wrote them until somebody resolves them.

    request --draft()--> Draft --its references, resolved--> Draft.job() --> Job

Every refusal is an `InvalidRequest` whose `param` is the field as the client wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from frontend.openai.conversation import MediaReference, Piece, Turn, turns
from frontend.openai.requests import MAX_PARAM, ChatRequest
from frontend.openai.speech_format import FORMATS
from omni.contract.errors import InvalidRequest, NotSupported, UnknownModel
from omni.contract.job import Job, MediaPart, Message, Part, TextPart, VideoOptions
from omni.contract.names import STAGES, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.profile import Profile

_SAME = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
    "min_tokens", "seed", "ignore_eos",
)  # fmt: skip
"""Fields that mean to a request what they mean to the thinker."""

_TALKER_FIELDS = {
    "talker_temperature": "temperature",
    "talker_top_p": "top_p",
    "talker_top_k": "top_k",
    "talker_repetition_penalty": "repetition_penalty",
    "talker_max_new_tokens": "max_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the client wants to get back."""

    model: str
    text: bool = True
    """Whether the answer shows as content; speech has its transcript either way."""
    speech: str | None = None
    """Format of the speech, one of `FORMATS`; None without speech."""
    stream: bool = False
    include_usage: bool = False
    """In a stream, a last chunk with the usage."""
    logprobs: bool = False
    spec_tokens_details: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A request that was found to be in order, with its media still unresolved."""

    turns: tuple[Turn, ...]
    settings: Settings
    video: VideoOptions
    wanted: Wanted

    @property
    def references(self) -> tuple[MediaReference, ...]:
        """All media in the order of the conversation."""
        return tuple(part for _, parts in self.turns for part in parts if isinstance(part, MediaReference))

    def job(self, id: str, media: Sequence[MediaPart]) -> Job:
        """The job, with `media` (as many, and in the order of `references`) in the places of the references."""
        resolved = iter(media)

        def place(part: Piece) -> Part:
            return part if isinstance(part, TextPart) else next(resolved)

        messages = tuple(Message(role, tuple(place(part) for part in parts)) for role, parts in self.turns)
        return Job(id=id, messages=messages, settings=self.settings, video=self.video)


def draft(request: ChatRequest, profile: Profile, models: Sequence[str] = ()) -> Draft:
    """`models` are the names that clients may use, the main one first; without any, the profile's own is.

    Raises `InvalidRequest`, `NotSupported` or `UnknownModel`.
    """
    models = models or (profile.model,)
    if request.model is not None and request.model not in models:
        raise UnknownModel("This server has no such model; GET /v1/models lists what it has.", param="model")
    _refuse_what_is_not_done(request)
    wanted = _wanted(request, profile, request.model or models[0])
    return Draft(
        turns=turns(request),
        settings=_settings(request, profile, wanted.speech is not None),
        video=_video(request),
        wanted=wanted,
    )


def _refuse_what_is_not_done(request: ChatRequest) -> None:
    if request.n is not None and request.n != 1:
        raise NotSupported("n must be 1: a request has one answer.", param="n")
    if request.response_format is not None and request.response_format.type != "text":
        raise NotSupported("response_format.type must be text.", param="response_format.type")
    if request.tools and request.tool_choice != "none":
        raise NotSupported("Tools aren't supported; leave them out, or set tool_choice to none.", param="tools")
    if request.tool_choice not in (None, "none", "auto"):
        raise NotSupported("Tools aren't supported; tool_choice must be none or auto.", param="tool_choice")
    if request.functions and request.function_call != "none":
        raise NotSupported("Functions aren't supported; leave them out.", param="functions")


def _wanted(request: ChatRequest, profile: Profile, model: str) -> Wanted:
    modalities = ["text"] if request.modalities is None else request.modalities
    if not modalities or not set(modalities) <= {"text", "audio"}:
        raise InvalidRequest('modalities must be ["text"], ["text", "audio"] or ["audio"].', param="modalities")
    speech = None
    if "audio" in modalities:
        if not profile.speech:
            raise NotSupported("This deployment answers in text only.", param="modalities")
        speech = _speech_format(request)
    options = request.stream_options
    return Wanted(
        model=model,
        text="text" in modalities,
        speech=speech,
        stream=bool(request.stream),
        include_usage=options is not None and bool(options.include_usage),
        logprobs=bool(request.logprobs),
        spec_tokens_details=bool(request.return_spec_tokens_details),
    )


def _speech_format(request: ChatRequest) -> str:
    if request.audio is None:
        return "wav"
    if request.audio.ref_audio is not None:
        raise NotSupported("Speaking in the voice of a sample isn't supported.", param="audio.ref_audio")
    format = (request.audio.format or "wav").lower()
    if format not in FORMATS:
        raise InvalidRequest(f"audio.format must be one of {', '.join(FORMATS)}.", param="audio.format")
    return format


def _settings(request: ChatRequest, profile: Profile, speech: bool) -> Settings:
    thinker = {name: value for name in _SAME if (value := getattr(request, name)) is not None}
    names: dict[str, str] = {}
    if (limit := request.max_completion_tokens) is not None:
        thinker["max_tokens"], names["max_tokens"] = limit, "max_completion_tokens"
    elif request.max_tokens is not None:
        thinker["max_tokens"] = request.max_tokens
    if request.stop is not None:
        thinker["stop"] = tuple(request.stop)
    if request.logit_bias:
        thinker["logit_bias"] = request.logit_bias
    if request.logprobs:
        thinker["logprobs"], names["logprobs"] = request.top_logprobs or 0, "top_logprobs"
    elif request.top_logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    talker = {inner: value for outer, inner in _TALKER_FIELDS.items() if (value := getattr(request, outer)) is not None}
    if request.seed is not None:
        talker["seed"] = request.seed
    sampling = {
        THINKER: _sampling(thinker, names),
        TALKER: _sampling(talker, {inner: outer for outer, inner in _TALKER_FIELDS.items()}),
    }
    for stage, values in (request.stage_sampling or {}).items():
        if stage not in sampling:
            raise InvalidRequest(f"stage_sampling may name {THINKER} and {TALKER}.", param="stage_sampling")
        with _at(f"stage_sampling.{stage}"):
            sampling[stage] = SamplingParams.from_json(values).over(sampling[stage])
    return Settings(
        speech=speech,
        sampling={stage: params for stage, params in sampling.items() if params is not _NOTHING},
        stage=_knobs(request, profile, speech),
    )


_NOTHING = SamplingParams()


def _sampling(values: Mapping[str, Any], names: Mapping[str, str]) -> SamplingParams:
    """Errors name a field as `names` has it."""
    if not values:
        return _NOTHING
    try:
        return SamplingParams.from_json(values)
    except InvalidRequest as problem:
        inner = problem.param or ""
        outer = names.get(inner, inner)
        raise InvalidRequest(problem.message.replace(inner, outer, 1), param=outer) from None


def _knobs(request: ChatRequest, profile: Profile, speech: bool) -> dict[str, dict[str, Any]]:
    """Stage parameters, with the voice among the talker's."""
    asked = request.stage_params
    if not asked and not speech:
        return {}
    asked = asked or {}
    if not asked.keys() <= set(STAGES):
        raise InvalidRequest(f"stage_params may name {', '.join(STAGES)}.", param="stage_params")
    with _at("stage_params"):
        Settings(stage=asked)
    knobs = {stage: dict(values) for stage, values in asked.items() if values}
    if not speech:
        return knobs
    talker = knobs.setdefault(TALKER, {})
    if "voice" in talker:
        talker["voice"] = voice_of(talker["voice"], profile, "stage_params.talker.voice")
    elif request.audio is not None and request.audio.voice is not None:
        talker["voice"] = voice_of(request.audio.voice.id, profile, "audio.voice")
    return {stage: values for stage, values in knobs.items() if values}


def voice_of(asked: str, profile: Profile, param: str) -> str:
    """The voice as the profile spells it."""
    for voice in profile.voices:
        if voice.lower() == asked.lower():
            return voice
    if not profile.voices:
        raise NotSupported("This deployment has one voice; leave the field out.", param=param)
    raise InvalidRequest(f"{param} must be one of {', '.join(profile.voices)}.", param=param)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Puts `path` before the field that an `InvalidRequest` from inside names."""
    try:
        yield
    except InvalidRequest as problem:
        param = path if problem.param is None else f"{path}.{problem.param}"[:MAX_PARAM]
        raise type(problem)(problem.message, param=param) from None


def _video(request: ChatRequest) -> VideoOptions:
    return VideoOptions(
        fps=request.video_fps,
        max_frames=request.video_max_frames,
        min_pixels=request.video_min_pixels,
        max_pixels=request.video_max_pixels,
        total_pixels=request.video_total_pixels,
        use_audio=bool(request.use_audio_in_video),
    )
