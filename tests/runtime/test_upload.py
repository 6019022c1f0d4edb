"""A job that comes in pieces: any split, any order, and what lies about its size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import InvalidRequest, OmniError, TooLarge
from omni.contract.job import Job, MediaPart, Message, TextPart, pack_job
from omni.contract.params import Settings
from omni.contract.tensors import Tensors, string
from omni.runtime.upload import Upload

pytestmark = pytest.mark.pure

SETTINGS = Settings()
blobs = st.lists(st.binary(max_size=60), max_size=4)


def asked(blobs: list[bytes]) -> Job:
    parts = (TextPart("look"), *(MediaPart.of("image", blob) for blob in blobs))
    return Job(id="g", messages=(Message("user", parts),), settings=SETTINGS)


def pieces(job: Job, cuts: list[int]) -> list[Tensors]:
    """A job cut at these places of its media."""
    head, media = pack_job(job)
    out: list[Tensors] = [
        {"MEDIA": piece, "PIECE": np.array([seq], np.int32)} for seq, piece in enumerate(np.split(media, cuts))
    ]
    out[0]["JOB"] = string(head)
    return out


def sent(upload: Upload, requests: list[Tensors]) -> list[Job]:
    """The jobs that came of these requests."""
    told = [upload.add("g", inputs, SETTINGS) for inputs in requests]
    assert all(message.eos for message in told if message is not None)
    return [message.job for message in told if message is not None and message.job is not None]


@given(blobs, st.data())
def test_any_split_in_any_order_is_the_job(blobs: list[bytes], data: st.DataObject) -> None:
    job = asked(blobs)
    size = pack_job(job)[1].size
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, size - 1)), max_size=8))) if size > 1 else []
    requests = data.draw(st.permutations(pieces(job, cuts)))
    assert sent(Upload(), requests) == [job]


def test_a_job_in_one_request_is_the_job() -> None:
    head, media = pack_job(asked([b"abc", b"de"]))
    assert sent(Upload(), [{"JOB": string(head), "MEDIA": media}]) == [asked([b"abc", b"de"])]


def test_the_head_may_come_alone() -> None:
    head, media = pack_job(asked([b"abc"]))
    first: Tensors = {"JOB": string(head), "PIECE": np.array([0], np.int32)}
    assert sent(Upload(), [first, {"MEDIA": media, "PIECE": np.array([1], np.int32)}]) == [asked([b"abc"])]


def test_what_comes_of_one_part_is_not_copied_again() -> None:
    upload = Upload()
    requests = pieces(asked([bytes(3000)]), [1000, 2000])
    written = upload._media
    [job] = sent(upload, requests)
    assert job.media[0].data is written.getvalue()


@given(st.data())
def test_too_little_never_becomes_a_job(data: st.DataObject) -> None:
    requests = pieces(asked([b"0123456789"]), [2, 5, 7])
    missing = data.draw(st.integers(0, 3))
    assert sent(Upload(), data.draw(st.permutations(requests[:missing] + requests[missing + 1 :]))) == []


def piece(seq: int, data: bytes = b"x", job: bytes | None = None) -> Tensors:
    out: Tensors = {"PIECE": np.array([seq], np.int32)}
    if data:
        out["MEDIA"] = np.frombuffer(data, np.uint8)
    if job is not None:
        out["JOB"] = string(job)
    return out


HEAD, _ = pack_job(asked([b"0123"]))
WHOLE: Tensors = {"JOB": string(HEAD), "MEDIA": np.zeros(4, np.uint8)}
ONE = b'{"messages":[{"role":"user","parts":[{"type":"image","offset":%s,"size":%s}]}]}'


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        ([piece(0, b"01234", HEAD)], InvalidRequest),
        ([piece(0, b"01", HEAD), piece(1, b"234")], InvalidRequest),
        ([piece(1, b"01234"), piece(0, b"", HEAD)], InvalidRequest),
        ([piece(7, b"01"), piece(0, b"0123", HEAD)], InvalidRequest),
        ([piece(0, b"0123", HEAD), piece(1)], InvalidRequest),
        ([piece(0, b"01", HEAD), piece(1, b"")], InvalidRequest),
        ([piece(0, b"01", HEAD), piece(1, b"2", HEAD)], InvalidRequest),
        ([piece(0, b"01")], InvalidRequest),
        ([piece(0, b"01", HEAD), piece(0, b"01")], OmniError),
        ([piece(2), piece(2)], OmniError),
        ([piece(-1, b"01", HEAD)], OmniError),
        ([piece(0, b"01", b"[]")], InvalidRequest),
        ([piece(0, b"01", ONE % (b"-9", b"2"))], InvalidRequest),
        ([piece(0, b"01", ONE % (b"-2", b"4"))], InvalidRequest),
        ([piece(0, b"01", ONE % (b"0", b"1e999"))], InvalidRequest),
        ([piece(0, b"01", ONE % (b"0", b"99999999999"))], TooLarge),
        ([piece(0, b"01", HEAD), WHOLE], OmniError),
        ([piece(1, b"01"), WHOLE], InvalidRequest),
        ([WHOLE, piece(1)], InvalidRequest),
        ([WHOLE, WHOLE], OmniError),
    ],
)
def test_what_does_not_fit_is_a_typed_error(requests: list[Tensors], error: type[OmniError]) -> None:
    upload = Upload()
    for inputs in requests[:-1]:
        upload.add("g", inputs, SETTINGS)
    with pytest.raises(error):
        upload.add("g", requests[-1], SETTINGS)


@pytest.mark.parametrize(
    "requests",
    [
        [piece(1, b"01"), piece(5, b"23")],
        [piece(0, b"", HEAD)],
        [{"JOB": string(HEAD), "MEDIA": np.zeros(4, np.uint8)}],
    ],
)
def test_media_over_the_limit_are_refused_whether_they_came_or_are_spoken_of(requests: list[Tensors]) -> None:
    upload = Upload(max_bytes=3)
    with pytest.raises(TooLarge):
        sent(upload, requests)


@given(st.lists(st.tuples(st.integers(-1, 5), st.binary(max_size=5), st.none() | st.just(HEAD)), max_size=8))
def test_rubbish_is_a_typed_error(rubbish: list[tuple[int, bytes, Any]]) -> None:
    upload = Upload(max_bytes=12)
    try:
        jobs = sent(upload, [piece(*one) for one in rubbish])
    except OmniError:
        return
    assert len(jobs) <= 1
