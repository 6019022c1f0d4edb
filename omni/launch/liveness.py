"""Does Triton still answer? Its health URLs stay green when a stage is dead, so a tiny generation is the question."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import uuid
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from omni.contract.errors import Overloaded
from omni.contract.job import PROBE_PRIORITY, Job, Message, TextPart, pack_job
from omni.contract.names import OMNI_TEXT, SETTINGS, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import EOS, ERR, JOB


def probe_request(id: str) -> Any:
    """A `ModelInferRequest` for one token of text, ahead of what clients wait for."""
    settings = Settings(sampling={THINKER: SamplingParams(max_tokens=1, temperature=0.0)})
    messages = (Message("user", (TextPart("ping"),)),)
    body, _ = pack_job(Job(id=id, messages=messages, settings=settings, priority=PROBE_PRIORITY))
    request = service_pb2.ModelInferRequest(model_name=OMNI_TEXT, id=id)
    request.inputs.add(name=JOB.name, datatype="BYTES", shape=[1])
    request.raw_input_contents.append(struct.pack("<I", len(body)) + body)
    request.parameters[SETTINGS].string_param = settings.dumps()
    return request


def answers(channel: grpc.Channel, deadline: float) -> bool:
    """Whether a tiny generation comes to its end within `deadline` seconds.

    A refusal because every place is taken is an answer too: that server is alive.
    """
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    ended = failed = False
    with contextlib.suppress(grpc.RpcError):
        # Read to the end of the stream: the server closes it when nothing of the generation is left open, and a stream
        # that is left before is a cancelled one.
        for reply in stub.ModelStreamInfer(iter([probe_request(str(uuid.uuid4()))]), timeout=deadline):
            response = reply.infer_response
            tensors = dict(zip((out.name for out in response.outputs), response.raw_output_contents, strict=False))
            if reply.error_message:
                failed = True
            elif (failure := tensors.get(ERR.name)) is not None:
                ended = True
                failed = json.loads(failure[4:]).get("code") != Overloaded.code
            else:
                ended = ended or tensors.get(EOS.name) == b"\1"
    return ended and not failed


class Liveness:
    """Asks in a thread of its own, every `interval` seconds, from `start` to `stop`."""

    def __init__(self, url: str, *, interval: float, deadline: float) -> None:
        """`url` is the host:port of Triton's gRPC service; `deadline` is in seconds."""
        self.failures = 0
        """Probes that failed in a row."""
        self._interval = interval
        self._deadline = deadline
        self._channel = grpc.insecure_channel(url)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._channel.close()
        self._thread.join(self._deadline)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                alive = answers(self._channel, self._deadline)
            except ValueError:
                # The channel was closed, or the answer isn't JSON.
                alive = False
            self.failures = 0 if alive else self.failures + 1
