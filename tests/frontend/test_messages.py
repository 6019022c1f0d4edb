"""The requests that the engine puts together by hand, read by the library."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from frontend.engine import messages
from omni.contract.job import Job, MediaPart, Message, TextPart, pack_job
from omni.contract.names import SETTINGS

pytestmark = pytest.mark.pure

media = st.lists(st.binary(min_size=1, max_size=20_000), max_size=4)


def asked(blobs: list[bytes]) -> Job:
    parts = (TextPart("look"), *(MediaPart.of("image", blob, f"images.{n}") for n, blob in enumerate(blobs)))
    return Job(id="one", messages=(Message("user", parts),))


@given(media)
def test_the_library_reads_it(blobs: list[bytes]) -> None:
    job = asked(blobs)
    head, media = pack_job(job)
    [serialized] = messages.requests(job, "lease")
    request = pb.ModelInferRequest.FromString(serialized)
    assert (request.model_name, request.id) == (job.model, "one")
    assert request.parameters["triton_enable_empty_final_response"].bool_param
    assert json.loads(request.parameters[SETTINGS].string_param)["lease"] == "lease"
    names = ["JOB", "MEDIA"] if blobs else ["JOB"]
    assert [one.name for one in request.inputs] == names
    assert [len(one) for one in request.raw_input_contents] == [len(head) + 4, *([media.size] if blobs else [])]
    assert request.raw_input_contents[0][4:] == head
    if blobs:
        assert request.inputs[1].shape == [media.size]
        assert request.raw_input_contents[1] == media.tobytes()


@given(media, st.integers(1, 9_000))
def test_many_media_travel_in_pieces(blobs: list[bytes], size: int) -> None:
    job = asked(blobs)
    head, media = pack_job(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "PIECE_BYTES", max(size, media.size // 20 + 1))
        requests = [pb.ModelInferRequest.FromString(one) for one in messages.requests(job, "lease")]
    assert len({(one.model_name, one.id, one.parameters[SETTINGS].string_param) for one in requests}) == 1
    said = [dict(zip((i.name for i in one.inputs), one.raw_input_contents, strict=True)) for one in requests]
    assert b"".join(one.get("MEDIA", b"") for one in said) == media.tobytes()
    assert [one["JOB"][4:] for one in said if "JOB" in one] == [said[0]["JOB"][4:]] == [head]
    numbers = [int(np.frombuffer(one["PIECE"], np.int32)[0]) for one in said if "PIECE" in one]
    assert numbers == (list(range(len(said))) if len(said) > 1 else [])
