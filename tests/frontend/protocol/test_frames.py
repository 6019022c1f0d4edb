from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.protocol.frames import OVERHEAD, Frame, FrameBuffer, stride, uniform

pytestmark = pytest.mark.pure

COUNTS = st.tuples(st.integers(1, 300), st.integers(1, 128))


def frame(number: int, size: int = 1, digest: str = "") -> Frame:
    return Frame(number, bytes(size), {"pts_ms": None}, 0.0, digest or str(number))


def numbers(frames: list[Frame] | FrameBuffer) -> list[int]:
    return [frame.number for frame in frames]


@pytest.mark.parametrize(
    ("count", "wanted", "places"),
    [
        (5, 2, [0, 4]),
        (3, 1, [2]),
        (4, 4, [0, 1, 2, 3]),
        (3, 8, [0, 1, 2]),
        (10, 4, [0, 2, 4, 9]),
        (7, 4, [0, 1, 2, 6]),
        (50, 4, [0, 12, 24, 49]),
        (19, 10, [*range(9), 18]),
        (255, 128, [*range(127), 254]),
    ],
)
def test_the_published_formula(count: int, wanted: int, places: list[int]) -> None:
    assert list(stride(count, wanted)) == places


@given(COUNTS)
def test_any_selection_rises_and_ends_with_the_newest(sizes: tuple[int, int]) -> None:
    count, wanted = sizes
    for places in (list(stride(count, wanted)), list(uniform(count, wanted))):
        assert len(places) == min(count, wanted)
        assert places == sorted(set(places))
        assert places[-1] == count - 1


@given(COUNTS)
def test_uniform_leaves_no_gap_much_wider_than_the_others(sizes: tuple[int, int]) -> None:
    count, wanted = sizes
    places = list(uniform(count, wanted))
    gaps = {b - a for a, b in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert wanted == 1 or places[0] == 0


def test_the_oldest_makes_room() -> None:
    buffer = FrameBuffer(3, 1 << 20, halve=False)
    gone = [buffer.append(frame(n)) for n in range(1, 6)]
    assert [numbers(one) for one in gone] == [[], [], [], [1], [2]]
    assert numbers(buffer) == [3, 4, 5]


def test_or_the_older_half_at_once() -> None:
    buffer = FrameBuffer(4, 1 << 20, halve=True)
    gone = [numbers(buffer.append(frame(n))) for n in range(1, 8)]
    assert gone == [[], [], [], [], [1, 2], [], [3, 4]]
    assert numbers(buffer) == [5, 6, 7]


@pytest.mark.parametrize("halve", [True, False])
def test_one_frame_is_always_held(halve: bool) -> None:
    buffer = FrameBuffer(1, 10, halve=halve)
    for n in range(1, 4):
        buffer.append(frame(n, size=1000))
        assert numbers(buffer) == [n]
        assert buffer.nbytes == 1000 + OVERHEAD


def test_bytes_are_bounded() -> None:
    buffer = FrameBuffer(100, 3 * (1000 + OVERHEAD), halve=False)
    for n in range(1, 10):
        buffer.append(frame(n, size=1000))
    assert numbers(buffer) == [7, 8, 9]


def test_a_picture_is_removed_with_its_copies() -> None:
    buffer = FrameBuffer(9, 1 << 20, halve=False)
    for n, digest in enumerate("abac", 1):
        buffer.append(frame(n, digest=digest))
    assert numbers(buffer.remove("a")) == [1, 3]
    assert numbers(buffer) == [2, 4]
    assert numbers(buffer.clear()) == [2, 4]
    assert buffer.nbytes == 0


def test_a_part_carries_the_bytes_and_what_errors_call_the_frame() -> None:
    one = Frame(7, b"jpeg", {"pts_ms": 40}, 5.0, "abc")
    part = one.part()
    assert (part.data, part.digest, part.param, part.at_ms) == (b"jpeg", "abc", "frame 7", 40.0)


@pytest.mark.parametrize("pts", [None, "12", True, float("nan"), []])
def test_without_a_time_of_its_own_a_frame_is_from_when_it_came(pts: object) -> None:
    assert Frame(1, b"", {"pts_ms": pts}, 5.0).at_ms == 5.0
