from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.stages.stop import StopStrings

pytestmark = pytest.mark.pure

few = st.text(alphabet="ab<", max_size=12)
stops = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=3)


def expected(text: str, strings: list[str]) -> tuple[str, bool]:
    """Letter by letter: cut at the first end of a stop string, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        met = [len(one) for one in strings if text[:end].endswith(one)]
        if met:
            return text[: end - max(met)], True
    return text, False


@given(st.lists(few, max_size=6), stops)
def test_the_cut_does_not_depend_on_the_pieces(pieces: list[str], strings: list[str]) -> None:
    stop = StopStrings(strings)
    shown = ""
    for piece in pieces:
        shown += stop.feed(piece)
        assert expected("".join(pieces), strings)[0].startswith(shown)
    assert (shown + stop.flush(), stop.found) == expected("".join(pieces), strings)


def test_nothing_is_held_back_without_need() -> None:
    stop = StopStrings(["<end>"])
    assert stop.feed("hello <en") == "hello "
    assert stop.feed("ough> <") == "<enough> "
    assert stop.flush() == "<"


def test_a_stop_string_before_its_time_is_text() -> None:
    stop = StopStrings(["x"])
    assert stop.feed("axb", armed=False) == "axb"
    assert (stop.feed("cxd"), stop.found) == ("c", True)
    assert stop.feed("more") == ""
