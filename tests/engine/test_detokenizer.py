from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.engine.detokenizer import Detokenizer

pytestmark = pytest.mark.pure
BYTES = [bytes([n]) for n in range(256)]


@given(st.binary(max_size=40))
def test_pieces_are_the_whole_whatever_the_bytes(data: bytes) -> None:
    text = Detokenizer(BYTES)
    assert "".join(text.feed(byte) for byte in data) + text.flush() == data.decode("utf-8", "replace")


def test_a_character_that_is_not_whole_is_held_back() -> None:
    text = Detokenizer([b"a", "é".encode()[:1], "é".encode()[1:], "🙂".encode()[:3]])
    assert [text.feed(token) for token in (0, 1, 2, 3)] == ["a", "", "é", ""]
    assert text.flush() == "�"


def test_unknown_ids_say_nothing() -> None:
    assert Detokenizer(BYTES).feed(999) == ""
