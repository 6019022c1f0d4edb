from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import InvalidRequest
from omni.contract.job import Job, MediaPart, Message, TextPart, VideoOptions, pack_job, unpack_job
from omni.contract.params import Settings

pytestmark = pytest.mark.pure

texts = st.text(st.characters(exclude_categories=("Cs",)))
parts = st.one_of(
    st.builds(TextPart, texts),
    st.builds(MediaPart.of, st.sampled_from(["image", "audio", "video"]), st.binary(max_size=40), texts),
    st.builds(MediaPart.of, st.just("image"), st.binary(max_size=4), at_ms=st.floats(0, 1e6)).map(
        lambda part: part.by_digest(read=part.at_ms == 0)
    ),
)
messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.lists(parts, max_size=4).map(tuple))
)


@given(messages.map(tuple), st.integers(-5, 5))
def test_a_job_survives_the_wire(conversation: tuple[Message, ...], priority: int) -> None:
    job = Job(id="j", messages=conversation, video=VideoOptions(fps=2.0, use_audio=True), priority=priority)
    back = unpack_job("j", *pack_job(job), Settings())
    sent = {p.digest for p in job.media if p.data is not None}
    for ours, theirs in zip(job.media, back.media, strict=True):
        assert (ours.kind, ours.digest, ours.param, ours.at_ms) == (
            theirs.kind,
            theirs.digest,
            theirs.param,
            theirs.at_ms,
        )
        assert theirs.data == ours.data or (ours.data is None and ours.digest in sent)
    assert [m.text for m in back.messages] == [m.text for m in job.messages]
    assert (back.video, back.priority) == (job.video, priority)


def test_equal_media_travel_once() -> None:
    part = MediaPart.of("image", b"12345678")
    _, media = pack_job(Job(id="j", messages=(Message("user", (part, part)),)))
    assert media.size == 8


BAD: list[Any] = [
    b"", b"[]", b"{}", b'{"messages":7}', b'{"messages":[{"role":"robot","parts":[]}]}',
    b'{"messages":[{"role":"user","parts":[{"type":"smell"}]}]}',
    b'{"messages":[{"role":"user","parts":[{"type":"image","offset":0,"size":99}]}]}',
    b'{"messages":[{"role":"user","parts":[{"type":"image","offset":-1,"size":2}]}]}',
    b'{"messages":[],"video":{"fps":0}}', b'{"messages":[],"video":{"depth":3}}',
    b'{"messages":[],"priority":Infinity}', b"[" * 100_000,
    b'{"messages":[{"role":"user","parts":[{"type":"image","at_ms":"soon"}]}]}',
]  # fmt: skip


@pytest.mark.parametrize("job", BAD)
def test_a_bad_job_is_refused(job: bytes) -> None:
    with pytest.raises(InvalidRequest):
        unpack_job("j", job, np.zeros(4, np.uint8), Settings())


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["messages", "role", "parts", "type", "text", "offset", "size", "video"]), x)))  # fmt: skip
def test_rubbish_is_a_typed_error(body: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        unpack_job("j", json.dumps(body).encode(), None, Settings())
