"""The request that the engine puts together by hand, read by the library."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from frontend.engine.triton import _request
from omni.contract.job import Job, MediaPart, Message, TextPart, pack_job
from omni.contract.names import SETTINGS

pytestmark = pytest.mark.pure


@given(st.lists(st.binary(min_size=1, max_size=20_000), max_size=4))
def test_the_library_reads_it(blobs: list[bytes]) -> None:
    parts = (TextPart("look"), *(MediaPart.of("image", blob, f"images.{n}") for n, blob in enumerate(blobs)))
    job = Job(id="one", messages=(Message("user", parts),))
    request = pb.ModelInferRequest.FromString(_request(job, "lease"))
    head, media = pack_job(job)
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
