"""What the dummy thinker says: a description of the last user message, part by part in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from omni.contract.handover import Handover

OPENINGS: Final = ("Received", "Noticed", "Perceived", "Got", "Took", "Observed", "Registered", "Recorded")
"""First words of an answer; which one follows from the seed."""

SILENCE_DB: Final = -99.9


def describe(prompt: Handover, opening: str = OPENINGS[0]) -> str:
    """For example, on one line for each part:

        Received turn 2: image 640x480 #ff8040
        audio 1.50s -12.3dB
        text: What do you see and hear?

    `turn N: ` only stands there after the first turn, `system: ...` only when there is a system prompt. A text is given
    word for word. Loudness is the root mean square against full scale.
    """
    messages: Sequence[Mapping[str, Any]] = prompt.meta["messages"]
    turns = [message for message in messages if message["role"] == "user"]
    system = ["".join(part.get("text", "") for part in m["parts"]) for m in messages if m["role"] == "system"]
    lines = [f"system: {text}" for text in system if text]
    lines += [_part(part, prompt) for part in (turns[-1]["parts"] if turns else ())]
    turn = f"turn {len(turns)}: " if len(turns) > 1 else ""
    return f"{opening} {turn}{chr(10).join(lines) or 'nothing'}"


def opening(seed: int | None, temperature: float) -> str:
    """The first word: the same for the same seed; without a seed or at temperature 0 always the same."""
    return OPENINGS[0 if seed is None or not temperature else seed % len(OPENINGS)]


def _part(facts: Mapping[str, Any], prompt: Handover) -> str:
    match facts["type"]:
        case "text":
            return f"text: {facts['text']}"
        case "image":
            red, green, blue = np.rint(prompt.arrays[facts["array"]].mean(axis=(0, 1))).astype(int).tolist()
            return f"image {facts['width']}x{facts['height']} #{red:02x}{green:02x}{blue:02x}"
        case "audio":
            return f"audio {facts['seconds']:.2f}s {decibel(facts['rms']):.1f}dB"
        case _:
            size = f"{facts['width']}x{facts['height']} {facts['frames']} frames {facts['seconds']:.2f}s"
            return f"video {size}{' with sound' if facts['has_audio'] else ''}"


def decibel(rms: float) -> float:
    """Loudness against full scale, never below `SILENCE_DB`."""
    return max(SILENCE_DB, 20 * math.log10(rms)) if rms > 0 else SILENCE_DB
