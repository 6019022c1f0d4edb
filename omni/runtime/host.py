"""The only file that touches Triton's Python backend: it makes a Triton model of a stage."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import triton_python_backend_utils as pb_utils

from omni import stages
from omni.contract import tensors
from omni.contract.job import MEDIA_KINDS
from omni.contract.names import PREPROCESS, SETTINGS, THINKER
from omni.contract.stage import StageConfig
from omni.contract.tensors import Tensors
from omni.profile import load_profile
from omni.runtime.generations import Pace
from omni.runtime.loop import MAX_LEASES, StageLoop
from omni.runtime.spans import Spans
from omni.runtime.upload import MAX_MEDIA_BYTES
from omni.stages.media import clock

log = logging.getLogger(__name__)

PUBLISH_S = 0.05
"""How often changed numbers go to Triton's metrics; each is a round trip between processes."""


class Responder:
    """One Triton request's response sender, as `omni.runtime.generations.Responder`."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def send(self, outputs: Tensors | None, final: bool) -> None:
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0
        try:
            if outputs is None:
                self._sender.send(flags=flags)
            else:
                response = pb_utils.InferenceResponse([pb_utils.Tensor(name, data) for name, data in outputs.items()])
                self._sender.send(response, flags=flags)
        except Exception:
            log.exception("a response could not be sent")

    def cancelled(self) -> bool:
        try:
            return bool(self._sender.is_cancelled())
        except Exception:
            log.exception("a request could not be asked whether its client lives")
            return True


@dataclass(slots=True)
class _Series:
    """One number that Triton is told when it changed."""

    metric: Any
    read: Callable[[], float]
    gauge: bool
    told: float = 0.0

    def publish(self) -> None:
        value = self.read()
        if value == self.told:
            return
        if self.gauge:
            self.metric.set(value)
        else:
            self.metric.increment(value - self.told)
        self.told = value


class Metrics:
    """The stage's numbers among Triton's own metrics, labelled `stage`; of preprocess also those of its decoders."""

    def __init__(self, loop: StageLoop) -> None:
        self._series: list[_Series] = []
        self._families: list[Any] = []
        stage, counters = {"stage": loop.name}, loop.counters
        gauge, counter = pb_utils.MetricFamily.GAUGE, pb_utils.MetricFamily.COUNTER

        def family(kind: Any, name: str, description: str) -> Callable[[dict[str, str], Callable[[], float]], None]:
            made = pb_utils.MetricFamily(name=name, description=description, kind=kind)
            self._families.append(made)
            return lambda labels, read: self._series.append(_Series(made.Metric(labels=labels), read, kind == gauge))

        def one(kind: Any, name: str, description: str, read: Callable[[], float]) -> None:
            family(kind, name, description)(stage, read)

        one(gauge, "omni_stage_generations", "Generations that the stage holds.", lambda: loop.generations)
        one(gauge, "omni_stage_open_requests", "Requests of the stage that wait for their end.",
            lambda: loop.open_requests)  # fmt: skip
        one(counter, "omni_stage_steps", "Steps of the stage that had output.", lambda: counters.steps)
        one(counter, "omni_stage_step_seconds", "Seconds spent in those steps.", lambda: counters.step_seconds)
        one(counter, "omni_stage_messages_received", "Messages from the stage before.", lambda: counters.received)
        one(counter, "omni_stage_messages_sent", "Messages to the stage after.", lambda: counters.sent)
        one(counter, "omni_stage_send_seconds", "Seconds spent in sending.", lambda: counters.send_seconds)
        one(counter, "omni_stage_reaped", "Generations ended because nothing was heard of them.",
            lambda: counters.reaped)  # fmt: skip
        ended = family(counter, "omni_stage_ended", "Generations that ended, by outcome.")
        for outcome in loop.outcomes:
            ended({**stage, "outcome": outcome}, partial(lambda outcome: loop.outcomes[outcome], outcome))
        if loop.name == PREPROCESS:
            seconds = family(counter, "omni_media_decode_seconds", "Seconds spent in decoding media.")
            decoded = family(counter, "omni_media_decoded", "Media that were decoded, or couldn't be.")
            for kind in MEDIA_KINDS:
                seconds({"kind": kind}, partial(clock.SECONDS.__getitem__, kind))
                decoded({"kind": kind}, partial(clock.DECODED.__getitem__, kind))

    def publish(self) -> None:
        """Tell Triton what changed since the last time."""
        for one in self._series:
            one.publish()


class Model:
    """What Triton calls. One instance per stage; it hands requests to the loop and returns at once."""

    stage: str

    def initialize(self, args: dict[str, str]) -> None:
        logging.basicConfig(stream=sys.stderr, level=os.environ.get("OMNI_LOG_LEVEL", "INFO").upper())
        config = json.loads(args["model_config"])
        if not config.get("model_transaction_policy", {}).get("decoupled"):
            raise ValueError(f"{self.stage} must be decoupled")
        profile = load_profile(os.environ.get("OMNI_PROFILE", "dummy"))
        options = {
            **profile.stages[self.stage],
            "context_length": profile.context_length,
            "voices": list(profile.voices),
            "model": profile.model,
        }
        pace = Pace()
        if self.stage == THINKER:
            pace = Pace(float(options.get("coalesce_ms", 40)) / 1000, int(options.get("coalesce_tokens", 4)))
        self._inputs = [tensor.name for tensor in tensors.INPUTS[self.stage]]
        self._spans = Spans(self.stage)
        self._loop = StageLoop(
            self.stage,
            lambda wake: stages.load(self.stage, StageConfig(options, wake)),
            pace=pace,
            ttl_s=float(options.get("ttl_s", 60)),
            max_leases=int(options.get("max_leases", MAX_LEASES)),
            max_media_bytes=int(options.get("max_media_bytes", MAX_MEDIA_BYTES)),
            on_life=self._spans.record,
        )
        self._metrics = Metrics(self._loop)
        self._stopped = threading.Event()
        self._publisher = threading.Thread(target=self._publish, name=f"{self.stage} metrics", daemon=True)
        self._publisher.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            responder = Responder(request.get_response_sender())
            try:
                inputs = self._read(request)
                control = inputs.get(tensors.CONTROL.name)
                if control is not None:
                    self._loop.control(bytes(control.reshape(-1)[0]), responder)
                    continue
                settings = json.loads(request.parameters() or "{}").get(SETTINGS, "{}")
                self._loop.receive(request.request_id(), str(settings), inputs, responder)
            except Exception:
                # Nothing may stay open: a request that can't even be read is closed without an answer.
                log.exception("%s could not read a request", self.stage)
                responder.send(None, True)

    def _read(self, request: Any) -> Tensors:
        out: Tensors = {}
        for name in self._inputs:
            if (tensor := pb_utils.get_input_tensor_by_name(request, name)) is not None:
                out[name] = tensor.as_numpy()
        return out

    def _publish(self) -> None:
        server = os.getppid()
        while not self._stopped.wait(PUBLISH_S):
            if os.getppid() != server:
                # Triton was killed. Its stub would wait for ever for the threads of a stage whose client is gone.
                os._exit(1)
            self._metrics.publish()

    def finalize(self) -> None:
        self._loop.close()
        self._stopped.set()
        self._publisher.join(timeout=5)
        self._spans.close()


def triton_model(name: str) -> Callable[[], Model]:
    """The `TritonPythonModel` class of the stage called `name`."""
    return type(f"{name.capitalize()}Model", (Model,), {"stage": name})
