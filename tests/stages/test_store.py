from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import InvalidMedia, MediaMissing
from omni.contract.job import Job, MediaPart, Message, VideoOptions
from omni.stages.media.store import MediaStore, Recent

pytestmark = pytest.mark.pure


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12))))
def test_the_sum_of_sizes_is_bounded_and_the_oldest_go(puts: list[tuple[int, int]]) -> None:
    recent: Recent[int, bytes] = Recent(20, len)
    model: dict[int, bytes] = {}
    for key, size in puts:
        recent.put(key, bytes(size))
        model.pop(key, None)
        model[key] = bytes(size)
        while sum(map(len, model.values())) > 20:
            del model[next(iter(model))]
        assert recent.bytes == sum(map(len, model.values()))
    assert {key for key in range(6) if recent.get(key) is not None} == model.keys()


def test_use_keeps_alive_and_too_large_is_not_held() -> None:
    recent: Recent[str, bytes] = Recent(2, len)
    recent.put("a", b"1")
    recent.put("b", b"2")
    assert recent.get("a") == b"1"
    recent.put("c", b"3")
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (b"1", None, b"3")
    recent.put("d", b"four")
    assert (recent.get("d"), len(recent)) == (None, 2)


def test_a_part_is_found_again_by_its_digest() -> None:
    store = MediaStore(lambda made: 1, max_bytes=10)
    part = MediaPart.of("image", b"12345678", "messages.0")
    with pytest.raises(MediaMissing) as caught:
        store.data(part.by_digest())
    assert caught.value.param == part.digest
    store.keep(Job(id="1", messages=(Message("user", (part,)),)))
    assert store.data(part.by_digest()) == b"12345678"
    store.keep(Job(id="2", messages=(Message("user", (MediaPart.of("image", b"abcdefgh"),)),)))
    with pytest.raises(MediaMissing):
        store.data(part.by_digest())


def test_what_was_made_is_made_once_for_the_same_options() -> None:
    store = MediaStore(lambda made: 1)
    part = MediaPart.of("video", b"12345678")
    made: list[bytes] = []

    def make(data: bytes) -> int:
        made.append(data)
        return len(made)

    assert store.made(part, VideoOptions(fps=1), make) == 1
    assert store.made(part.by_digest(), VideoOptions(fps=1), make) == 1
    assert store.made(part, VideoOptions(fps=2), make) == 2
    assert store.made(MediaPart.of("audio", b"12345678"), VideoOptions(fps=1), make) == 3

    def fail(data: bytes) -> int:
        raise InvalidMedia("broken", param="here")

    other = MediaPart.of("image", b"other")
    with pytest.raises(InvalidMedia):
        store.made(other, None, fail)
    assert store.made(other, None, make) == 4
