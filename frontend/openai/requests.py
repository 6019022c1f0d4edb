"""The wire shape of a chat request. Types only; what the values mean is checked in `to_job`.

Unknown fields are ignored, as OpenAI's clients expect. A field that is null counts as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from omni.contract.errors import InvalidRequest, TooLarge

Encoded = str | bytes | bytearray
"""Media as the client wrote it: a URL or base64. Long ones come as bytes, see `JsonBody`."""

MAX_PARAM = 200
"""Characters of a field's path that an error repeats: parts of it may be keys that the client made up."""

_SAYS = {
    "missing": "is required",
    "int_type": "must be an integer",
    "int_parsing_size": "must be a smaller integer",
    "float_type": "must be a number",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "value_error": "must be text in UTF-8",
}
_OURS = "omni"


def _wrong(says: str) -> PydanticCustomError:
    return PydanticCustomError(_OURS, says)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytearray) else value


def _encoded(value: Any) -> Encoded:
    if not isinstance(value, Encoded):
        raise _wrong("must be a string")
    return value


def bare(name: str) -> BeforeValidator:
    """A bare string stands for an object with that one field."""

    def whole(value: Any) -> Any:
        if value is not None and not isinstance(value, (Encoded, dict)):
            raise _wrong("must be a string or an object")
        return {name: value} if isinstance(value, Encoded) else value

    return BeforeValidator(whole)


def _content(value: Any) -> Any:
    if value is None or value == "":
        return []
    if isinstance(value, Encoded):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise _wrong("must be a string or a list of content parts")
    return [{"type": "text", "text": one} if isinstance(one, Encoded) else one for one in value]


def _stop(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if value is not None and not isinstance(value, list):
        raise _wrong("must be a string or a list of strings")
    return value


Text = Annotated[str, BeforeValidator(_text)]
Source = Annotated[Encoded, PlainValidator(_encoded), WithJsonSchema({"type": "string"})]


class Wire(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True, use_attribute_docstrings=True)


class MediaUrl(Wire):
    url: Source


class InputAudio(Wire):
    data: Source
    format: Text | None = None
    """A label only: what the sound is, is read from its bytes."""


Url = Annotated[MediaUrl | None, bare("url")]


class ContentPart(Wire):
    type: Text
    """text, input_text, image_url, input_image, audio_url, input_audio or video_url."""
    text: Text | None = None
    image_url: Url = None
    audio_url: Url = None
    video_url: Url = None
    input_audio: Annotated[InputAudio | None, bare("data")] = None


class ChatMessage(Wire):
    role: Text
    """system, developer, user or assistant."""
    content: Annotated[
        list[ContentPart],
        BeforeValidator(
            _content,
            json_schema_input_type=str | list[str | ContentPart] | None,
        ),
    ] = []
    name: Text | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    audio: Any = None


class StreamOptions(Wire):
    include_usage: bool | None = None


class ResponseFormat(Wire):
    type: Text


class Voice(Wire):
    id: Text


class AudioOptions(Wire):
    format: Text | None = None
    """wav, mp3, flac, opus, aac, pcm16 or pcm."""
    voice: Annotated[Voice | None, bare("id")] = None
    ref_audio: Any = None


class ChatRequest(Wire):
    """The body of `POST /v1/chat/completions`."""

    messages: list[ChatMessage]
    model: Text | None = None
    modalities: list[Text] | None = None
    """["text"], or ["text", "audio"] for text and speech, or ["audio"] for speech and its transcript."""
    audio: AudioOptions | None = None
    images: list[Source] | None = None
    audios: list[Source] | None = None
    videos: list[Source] | None = None

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """Wins over max_tokens."""
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: Annotated[list[Text] | None, BeforeValidator(_stop, json_schema_input_type=str | list[str] | None)] = None
    seed: int | None = None
    ignore_eos: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None

    talker_temperature: float | None = None
    talker_top_p: float | None = None
    talker_top_k: int | None = None
    talker_repetition_penalty: float | None = None
    talker_max_new_tokens: int | None = None
    stage_sampling: dict[str, dict[str, Any]] | None = None
    """Sampling parameters by stage; they win over the fields above."""
    stage_params: dict[str, dict[str, Any]] | None = None
    """Other knobs by stage."""

    use_audio_in_video: bool | None = None
    video_fps: float | None = None
    video_max_frames: int | None = None
    video_min_pixels: int | None = None
    video_max_pixels: int | None = None
    video_total_pixels: int | None = None

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_spec_tokens_details: bool | None = None
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None

    user: Text | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None


def bounded(body: Any, most: int) -> None:
    """Raises `TooLarge` when the messages and their parts, or what another field holds, are more than `most`.

    For bodies that nobody has looked at yet: to check each of a million parts takes seconds.
    """
    if not isinstance(body, dict):
        return
    for name in ChatRequest.model_fields:
        if isinstance(body.get(name), (list, dict)) and len(body[name]) > most:
            raise TooLarge(f"{name} may hold {most} items.", param=name)
    room = most
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        room -= 1 + (len(content) if isinstance(content, list) else 0)
        if room < 0:
            raise TooLarge(f"messages may hold {most} messages and parts in all.", param=f"messages.{at}")


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: Any) -> Model:
    """`body`, parsed JSON, as a `model`. Raises `InvalidRequest` naming the first field that is of a wrong type."""
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return model.model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join(str(step) for step in first["loc"])[:MAX_PARAM]
    says = first["msg"] if first["type"] == _OURS else _SAYS.get(first["type"], "has a wrong type")
    raise InvalidRequest(f"{param} {says}.", param=param)
