"""What the SGLang session profile offers: its events, defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frontend.protocol.realtime_limits import Limits
from omni.contract.names import SAMPLE_RATE, TALKER, THINKER

Event = dict[str, Any]
NAME: Final = "sglang-session"
RATE: Final = 16_000
TAIL_POLICIES: Final = ("flush", "pad", "reject")
DEFAULTS: Final[Mapping[str, Any]] = {
    "output_modalities": ["text"],
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": RATE},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 800},
        }
    },
}
SAMPLING: Final = {
    "temperature": (THINKER, "temperature"),
    "top_p": (THINKER, "top_p"),
    "top_k": (THINKER, "top_k"),
    "min_p": (THINKER, "min_p"),
    "repetition_penalty": (THINKER, "repetition_penalty"),
    "max_new_tokens": (THINKER, "max_tokens"),
    "seed": (THINKER, "seed"),
    "talker_temperature": (TALKER, "temperature"),
    "talker_top_p": (TALKER, "top_p"),
    "talker_top_k": (TALKER, "top_k"),
    "talker_repetition_penalty": (TALKER, "repetition_penalty"),
    "talker_max_new_tokens": (TALKER, "max_tokens"),
}
"""Its sampling parameters, by the stage and the name that they have here."""
FIELDS: Final = {
    "session.update": {"session"},
    "input_audio_buffer.append": {"audio", "sglang"},
    "sglang.input_image.append": {"image", "sglang"},
    "input_audio_buffer.commit": set(),
    "input_audio_buffer.clear": set(),
    "response.create": {"response"},
    "response.cancel": {"response_id"},
    "conversation.item.truncate": {"item_id", "content_index", "audio_end_ms"},
    "sglang.input_audio.end": set(),
    "session.close": set(),
}
"""Of each client event, besides `type` and `event_id`."""


def limits_json(limits: Limits) -> Event:
    return {
        "input_buffer_ms": round(limits.buffer_s * 1000),
        "utterance_ms": round(limits.turn_s * 1000),
        "history_chars": limits.chars,
        "image_bytes": limits.image_bytes,
        "frames_per_utterance": limits.frames,
        "idle_ms": round(limits.idle_s * 1000),
        "session_ms": round(limits.age_s * 1000),
    }


def capabilities(model: str, limits: Limits, *, speech: bool, voices: tuple[str, ...]) -> Event:
    """The answer of `GET /v1/realtime/capabilities`."""
    return {
        "object": "realtime.capabilities",
        "dialect": NAME,
        "model": model,
        "input": {
            "audio": {"type": "audio/pcm", "rates": [RATE, SAMPLE_RATE]},
            "image": {"formats": ["jpeg", "png", "webp"], "max_bytes": limits.image_bytes},
        },
        "output": {
            "modalities": [["text"], ["text", "audio"], ["audio"]] if speech else [["text"]],
            "audio": {"type": "audio/pcm", "rate": SAMPLE_RATE},
            "voices": list(voices),
        },
        "turn_detection": ["server_vad", "semantic_vad", None],
        "tail_policies": list(TAIL_POLICIES),
        "sampling": list(SAMPLING),
        "client_events": list(FIELDS),
        "limits": limits_json(limits),
    }
