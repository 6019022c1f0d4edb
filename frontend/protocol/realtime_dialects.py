"""Translations between the GA events of `realtime` and what older and other clients say. They hold no state.

A dialect takes in a client's event and gives the GA event that means the same, and takes a GA event and gives what its
clients know instead: one event, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from frontend.protocol.fields import BadEvent

Event = dict[str, Any]


class Dialect(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What a session begins with, as the `session` of a GA `session.update`."""

    def inbound(self, event: Event) -> Event:
        """Raises `BadEvent`."""

    def outbound(self, event: Event) -> Iterable[Event]: ...


class OpenAI:
    """GA, as it is."""

    name = "openai"
    defaults: Mapping[str, Any] = {}

    def inbound(self, event: Event) -> Event:
        return event

    def outbound(self, event: Event) -> Iterable[Event]:
        return (event,)


_FORMATS: Final = {"g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_FORMAT_NAMES: Final = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
_BETA_NAMES: Final = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}
_BETA_PARTS: Final = {"output_text": "text", "output_audio": "audio"}


class Beta:
    """The names of before GA: flat sessions, `response.audio.delta`, `conversation.item.created`."""

    name = "beta"
    defaults: Mapping[str, Any] = {}
    input_rate = 24_000

    def inbound(self, event: Event) -> Event:
        key = {"session.update": "session", "response.create": "response"}.get(str(event.get("type")))
        if (
            key is None
            or not isinstance(flat := event.get(key), dict)
            or "audio" in flat
            or "output_modalities" in flat
        ):
            return event
        return {**event, key: self._nested(flat, key)}

    def outbound(self, event: Event) -> Iterable[Event]:
        kind = event["type"]
        if kind == "conversation.item.done":
            return ()
        out = {**event, "type": _BETA_NAMES.get(kind, kind)}
        if "session" in event:
            out["session"] = _flat(event["session"])
        if "item" in event:
            out["item"] = _beta_item(event["item"])
        if "response" in event:
            out["response"] = self._response(event["response"])
        return (out,)

    def _nested(self, flat: Mapping[str, Any], path: str) -> Event:
        """A flat session or response as GA has it; errors about it name the fields of GA."""
        left = dict(flat)
        out: Event = {}
        heard: Event = {}
        spoken: Event = {}
        if "modalities" in left:
            out["output_modalities"] = left.pop("modalities")
        for name in ("max_response_output_tokens", "max_output_tokens"):
            if name in left:
                out["max_output_tokens"] = left.pop(name)
        if (temperature := left.pop("temperature", None)) is not None:
            out["sampling"] = {"thinker": {"temperature": temperature}}
        if (format := left.pop("input_audio_format", None)) is not None:
            heard["format"] = _format(format, self.input_rate, f"{path}.input_audio_format")
        if (format := left.pop("output_audio_format", None)) is not None:
            spoken["format"] = _format(format, 24_000, f"{path}.output_audio_format")
        if "input_audio_transcription" in left:
            heard["transcription"] = left.pop("input_audio_transcription")
        if "turn_detection" in left:
            detection = left.pop("turn_detection")
            heard["turn_detection"] = detection
        left.pop("input_audio_noise_reduction", None)
        for name in ("voice", "speed"):
            if name in left:
                spoken[name] = left.pop(name)
        left.pop("client_secret", None)
        audio = {key: value for key, value in (("input", heard), ("output", spoken)) if value}
        return {**left, **out, **({"audio": audio} if audio else {})}

    def _response(self, response: Mapping[str, Any]) -> Event:
        out = dict(response)
        output = out.pop("audio")["output"]
        modalities = out.pop("output_modalities")
        return {
            **out,
            "output": [_beta_item(item) for item in response["output"]],
            "modalities": ["text", "audio"] if "audio" in modalities else ["text"],
            "voice": output["voice"],
            "output_audio_format": _FORMAT_NAMES[output["format"]["type"]],
        }


class SGLang(Beta):
    """SGLang-Omni's standard speech pipeline: Beta names, 16 kHz in, text by default, and fewer events."""

    name = "sglang"
    defaults: Mapping[str, Any] = {
        "output_modalities": ["text"],
        "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "transcription": {}}},
    }
    input_rate = 16_000

    _SPOKEN: Final = (
        "conversation.created", "conversation.item.added", "response.output_item.added", "response.output_item.done",
        "response.content_part.added", "response.content_part.done",
    )  # fmt: skip

    def outbound(self, event: Event) -> Iterable[Event]:
        kind = event["type"]
        if kind in self._SPOKEN:
            return ()
        (out,) = super().outbound(event) or ({},)
        if not out:
            return ()
        # Here the words of speech are text too, at index 0, and the sound is at index 1.
        if kind == "response.output_audio_transcript.delta":
            out["type"] = "response.text.delta"
        elif kind == "response.output_audio_transcript.done":
            out = {**out, "type": "response.text.done", "text": out["transcript"]}
            del out["transcript"]
        elif kind.startswith("response.output_audio."):
            out["content_index"] = 1
        return (out,)

    def _response(self, response: Mapping[str, Any]) -> Event:
        out: Event = {
            "id": response["id"],
            "object": response["object"],
            "status": response["status"],
            "status_details": response["status_details"],
            "output": [_sglang_item(item) for item in response["output"]],
            "metadata": response["metadata"],
        }
        if response["usage"] is not None:
            usage = response["usage"]
            prompt, completion = usage["input_tokens"], usage["output_token_details"]["text_tokens"]
            out["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
        return out


def _format(name: Any, rate: int, param: str) -> Event:
    if name == "pcm16":
        return {"type": "audio/pcm", "rate": rate}
    if isinstance(name, str) and name in _FORMATS:
        return {"type": _FORMATS[name]}
    raise BadEvent(f"{param} must be one of pcm16, {', '.join(_FORMATS)}.", "invalid_value", param)


def _flat(session: Mapping[str, Any]) -> Event:
    heard, spoken = session["audio"]["input"], session["audio"]["output"]
    return {
        "id": session["id"],
        "object": session["object"],
        "expires_at": session["expires_at"],
        "model": session["model"],
        "instructions": session["instructions"],
        "modalities": ["text", "audio"] if "audio" in session["output_modalities"] else ["text"],
        "voice": spoken["voice"],
        "input_audio_format": _FORMAT_NAMES[heard["format"]["type"]],
        "output_audio_format": _FORMAT_NAMES[spoken["format"]["type"]],
        "input_audio_transcription": heard["transcription"],
        "turn_detection": heard["turn_detection"],
        "tools": session["tools"],
        "tool_choice": session["tool_choice"],
        "max_response_output_tokens": session["max_output_tokens"],
    }


def _beta_item(item: Mapping[str, Any]) -> Event:
    content = [{**part, "type": _BETA_PARTS.get(part["type"], part["type"])} for part in item["content"]]
    return {**item, "content": content}


def _sglang_item(item: Mapping[str, Any]) -> Event:
    content: list[Event] = []
    for part in item["content"]:
        if part["type"] == "output_audio":
            text = part["transcript"]
            content += [{"type": "text", "text": text}, {"type": "audio", "transcript": text}]
        else:
            content.append({"type": "text", "text": part.get("text", "")})
    return {"id": item["id"], "object": item["object"], "type": "message", "role": item["role"], "content": content}


OPENAI: Final = OpenAI()
BETA: Final = Beta()
SGLANG: Final = SGLang()
DIALECTS: Final[Mapping[str, Dialect]] = {one.name: one for one in (OPENAI, BETA, SGLANG)}

_BETA_ONLY: Final = frozenset(
    {
        "modalities", "input_audio_format", "output_audio_format", "voice", "input_audio_transcription",
        "turn_detection", "max_response_output_tokens", "temperature",
    }
)  # fmt: skip


def dialect_of(event: Mapping[str, Any], default: Dialect) -> Dialect:
    """The dialect of a client whose first event is `event`: a flat session can only be one of Beta's."""
    session = event.get("session")
    if default.name != OPENAI.name or event.get("type") != "session.update" or not isinstance(session, Mapping):
        return default
    flat = not _BETA_ONLY.isdisjoint(session) and "audio" not in session and "output_modalities" not in session
    return BETA if flat and session.get("type") is None else default
