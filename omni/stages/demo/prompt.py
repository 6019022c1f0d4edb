"""How a conversation is put to the thinker: ChatML, after three short examples of what is wanted.

A model this small follows examples far better than instructions. They come first and never change, so that their state
is computed once; a client's own system prompt follows them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

SYSTEM: Final = "You are a helpful assistant. Answer in one short sentence."
EXAMPLES: Final = (
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    ("The picture shows a horse. What do you see?", "I see a horse."),
    ('The text says "The shop opens at nine." What is it about?', "It is about when a shop opens."),
)
ASK: Final = "What do you see?"
"""What is asked of a picture or a clip that comes without a question."""
NO_SPEECH: Final = "There is a sound without words."
_SPECIAL: Final = re.compile(r"<\|(?=\w+\|>)")


def turn(role: str, text: str) -> str:
    """One message. What looks like a control token in `text` is broken up, since llama.cpp would take it for one."""
    return f"<|im_start|>{role}\n{_SPECIAL.sub('< |', text)}<|im_end|>\n"


PREFIX: Final = turn("system", SYSTEM) + "".join(turn("user", q) + turn("assistant", a) for q, a in EXAMPLES)
"""What every prompt begins with."""


def render(messages: Sequence[tuple[str, str]]) -> str:
    """The prompt of a conversation of `(role, text)`, up to where the answer begins."""
    return PREFIX + "".join(turn(role, text) for role, text in messages) + "<|im_start|>assistant\n"


def article(name: str) -> str:
    """`name` with its indefinite article: a cat, an Egyptian cat."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def listed(things: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(things[:-1]), *things[-1:])))


def picture(things: Sequence[str]) -> str:
    """What a picture shows, the surest thing first."""
    return f"The picture shows {listed([article(thing) for thing in things]) or 'nothing that I know'}."


def clip(scenes: Sequence[str], heard: str | None) -> str:
    """What a clip shows, one thing per scene in the order of time, and what is said in it if it was listened to."""
    shown = ", then ".join(article(scene) for scene in scenes) or "nothing that I know"
    said = "" if heard is None else f' Someone says "{heard}"' if heard else f" {NO_SPEECH}"
    return f"The video shows {shown}.{said}"
