from __future__ import annotations

import pytest

from frontend.protocol.turns import Turns
from omni.contract.chunk import Chunk, Usage

pytestmark = pytest.mark.pure


def test_text_is_every_piece_once() -> None:
    turn = Turns().begin("a")
    for piece in ("1", "0", "0", "0", "", " very", " very"):
        turn.feed(Chunk(piece))
    assert turn.text == "1000 very very"


def test_speech_and_the_end_of_the_text_are_noticed() -> None:
    turn = Turns().begin("a")
    turn.feed(Chunk("x"))
    assert not turn.spoke
    assert turn.finish is None
    turn.feed(Chunk(finish="length", usage=Usage(prompt_tokens=4)))
    turn.feed(Chunk(audio=bytes(6)))
    assert turn.spoke
    assert turn.samples == 3
    assert turn.finish == "length"
    assert turn.usage.prompt_tokens == 4


def test_a_turn_ends_once() -> None:
    turns = Turns()
    turn = turns.begin("a")
    assert turns.end("cancelled") is turn
    assert turns.end("completed") is None
    assert not turn.end("completed")
    assert turn.outcome == "cancelled"


def test_stragglers_are_told_apart() -> None:
    turns = Turns()
    first = turns.begin("a")
    turns.end("cancelled")
    second = turns.begin("b")
    assert turns.find(first.number) is None
    assert turns.find(second.number) is second


def test_numbers_are_never_used_again() -> None:
    turns = Turns()
    numbers = [turns.number(), turns.begin("a").number, turns.number()]
    assert len(set(numbers)) == 3


def test_one_turn_at_a_time() -> None:
    turns = Turns()
    turns.begin("a")
    with pytest.raises(AssertionError):
        turns.begin("b")
