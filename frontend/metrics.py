"""Everything that /metrics tells. A protocol makes one `Turn` per generation and shows it each chunk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.metadata import version
from math import inf
from time import perf_counter
from typing import Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import Cancelled, InvalidMedia, InvalidRequest, OmniError, TooLarge

Outcome = Literal["completed", "cancelled", "failed", "refused"]
"""`refused` is what the client asked for and can't have."""
Clock = Callable[[], float]

# A second series for each counter and histogram, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

MEDIA_CODES: Final = (InvalidMedia.code, TooLarge.code)
"""Errors by which media are refused, here or in preprocess."""
VERSION: Final = version("omni-server")

_FIRST = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_GAP = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
_TURN = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_FACTOR = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 4.0)


class Gaps:
    """A histogram that is cheap enough for every delta: two additions and a bisection, no lock.

    Only the event loop writes, and a scrape that reads in between is off by one delta at most.
    """

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(_GAP) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int) -> None:
        self._counts[bisect_left(_GAP, seconds)] += times
        self._sum += seconds * times

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum, as Prometheus wants them."""
        total, out = 0, []
        for bound, count in zip((*_GAP, inf), self._counts, strict=True):
            total += count
            out.append(("+Inf" if bound == inf else str(bound), float(total)))
        return out, self._sum


class _GapsCollector(Collector):
    def __init__(self) -> None:
        self.by_endpoint: dict[str, Gaps] = {}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "omni_inter_token_seconds", "Time between two tokens of an answer.", labels=["endpoint"]
        )
        for endpoint, gaps in self.by_endpoint.items():
            buckets, total = gaps.buckets()
            family.add_metric([endpoint], buckets, total)
        yield family


class _Endpoint:
    """The metrics of the turns of one endpoint, with the labels looked up once."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.first_token = metrics.time_to_first_token.labels(name)
        self.first_audio = metrics.time_to_first_audio.labels(name)
        self.real_time_factor = metrics.audio_real_time_factor.labels(name)
        self.underruns = metrics.audio_underruns.labels(name)
        self.audio_seconds = metrics.audio_seconds.labels(name)
        self.duration = metrics.turn_duration.labels(name)
        self.gaps = metrics.gaps.by_endpoint.setdefault(name, Gaps())


class Metrics:
    """All metrics of one front door, in a registry of their own. Times are seconds."""

    def __init__(self, *, model: str, profile: str, speech: bool, clock: Clock = perf_counter) -> None:
        self.registry = registry = CollectorRegistry()
        self.clock = clock
        self.speech = speech
        self.proofs = 0
        """Turns that completed and used every stage that this deployment has: as good as a health check."""

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(name, help, labels, registry=registry)

        def gauge(name: str, help: str, *labels: str) -> Gauge:
            return Gauge(name, help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, help, ("endpoint",), registry=registry, buckets=buckets)

        self.requests = counter(
            "omni_requests", "HTTP requests and WebSocket connections that ended.", "endpoint", "outcome"
        )
        self.requests_in_progress = gauge("omni_requests_in_progress", "HTTP requests and WebSockets being served.")
        self.request_duration = histogram("omni_request_duration_seconds", "Time from request to end of answer.", _TURN)
        self.sessions_active = gauge("omni_sessions_active", "Open WebSocket sessions.", "protocol")
        self.admission_rejections = counter(
            "omni_admission_rejections", "Requests refused because a limit was reached.", "reason"
        )
        self.turns = counter("omni_turns", "Generations that ended.", "endpoint", "outcome")
        self.turns_in_progress = gauge("omni_turns_in_progress", "Generations that run.")
        self.turn_errors = counter("omni_turn_errors", "Generations that failed, by the code of the error.", "code")
        self.turn_duration = histogram("omni_turn_duration_seconds", "Time from request to end of generation.", _TURN)
        self.cancellations = counter("omni_cancellations", "Generations ended by the client.", "endpoint")
        self.time_to_first_token = histogram(
            "omni_time_to_first_token_seconds", "Time from request to first text.", _FIRST
        )
        self.time_to_first_audio = histogram(
            "omni_time_to_first_audio_seconds", "Time from request to first speech.", _FIRST
        )
        self.audio_real_time_factor = histogram(
            "omni_audio_real_time_factor", "Time that speech took over its length; below 1 keeps up.", _FACTOR
        )
        self.audio_underruns = counter(
            "omni_audio_underruns", "Chunks of speech that came after a real-time player had run dry.", "endpoint"
        )
        self.audio_seconds = counter("omni_audio_seconds", "Seconds of speech that were produced.", "endpoint")
        self.prompt_tokens = counter("omni_prompt_tokens", "Tokens of prompts.")
        self.cached_tokens = counter("omni_cached_prompt_tokens", "Tokens of prompts whose state was reused.")
        self.generation_tokens = counter("omni_generation_tokens", "Tokens of answers.")
        self.frames = counter("omni_frames", "Frames of video sessions: kept, filtered or failed.", "outcome")
        self.vad_events = counter(
            "omni_vad_events", "What voice detection found: speech_started, speech_stopped, timeout.", "kind"
        )
        self.media_rejected = counter("omni_media_rejected", "Requests refused for their media or size.", "reason")
        self.triton_up = gauge("omni_triton_up", "1 while the stages answer.")
        self.gaps = _GapsCollector()
        registry.register(self.gaps)
        ProcessCollector(registry=registry)
        gauge("omni_build_info", "What runs here.", "version", "model", "profile").labels(VERSION, model, profile).set(
            1
        )
        self._endpoint = lru_cache(maxsize=None)(lambda name: _Endpoint(self, name))

    def turn(self, endpoint: str) -> Turn:
        """A generation begins. `endpoint` is a label: one of a few fixed names."""
        return Turn(self, endpoint, self._endpoint(endpoint))

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A gauge whose value `read` gives at each scrape."""
        Gauge(name, help, registry=self.registry).set_function(read)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The text of /metrics and its content type, in the format that the `accept` header prefers."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class Turn:
    """One generation, from request to end. `chunk` is called per delta and does no more than it must."""

    __slots__ = (
        "_audio_seconds", "_clock", "_endpoint", "_last_audio", "_last_text", "_metrics", "_name", "_played_until",
        "_running", "_started", "_tokens", "_usage", "outcome",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, name: str, endpoint: _Endpoint) -> None:
        self._metrics = metrics
        self._name = name
        self._endpoint = endpoint
        self._clock = metrics.clock
        self._started = metrics.clock()
        self._last_text = 0.0
        self._last_audio = 0.0
        self._played_until = 0.0
        self._audio_seconds = 0.0
        self._tokens = 0
        self._usage: Usage | None = None
        self._running = True
        self.outcome: Outcome | None = None
        """How it ended; None while it runs."""
        metrics.turns_in_progress.inc()

    def chunk(self, chunk: Chunk) -> None:
        if tokens := chunk.tokens:
            now = self._clock()
            if self._tokens:
                self._endpoint.gaps.observe((now - self._last_text) / tokens, tokens)
            else:
                self._endpoint.first_token.observe(now - self._started)
            self._tokens += tokens
            self._last_text = now
        if chunk.audio:
            self._heard(chunk.audio_seconds)
        if chunk.usage is not None:
            self._usage = chunk.usage

    def _heard(self, seconds: float) -> None:
        now = self._clock()
        if not self._audio_seconds:
            self._endpoint.first_audio.observe(now - self._started)
            self._played_until = now
        elif now > self._played_until:
            self._endpoint.underruns.inc()
            self._played_until = now
        self._played_until += seconds
        self._audio_seconds += seconds
        self._last_audio = now

    def fail(self, error: Exception) -> None:
        """The generation is over with `error`, which needn't be a failure of ours."""
        known = error if isinstance(error, OmniError) else OmniError("")
        outcome: Outcome = "cancelled" if isinstance(known, Cancelled) else "failed"
        self.end("refused" if isinstance(known, InvalidRequest) else outcome, known.code)

    def end(self, outcome: Outcome, error_code: str | None = None) -> None:
        """The generation is over; a second call changes nothing."""
        if not self._running:
            return
        self._running = False
        self.outcome = outcome
        metrics, endpoint = self._metrics, self._endpoint
        metrics.turns_in_progress.dec()
        metrics.turns.labels(self._name, outcome).inc()
        if outcome == "refused":
            if error_code in MEDIA_CODES:
                metrics.media_rejected.labels(error_code).inc()
            return
        endpoint.duration.observe(self._clock() - self._started)
        if outcome == "cancelled":
            metrics.cancellations.labels(self._name).inc()
        elif outcome == "failed":
            metrics.turn_errors.labels(error_code or "internal_error").inc()
        elif self._audio_seconds or not metrics.speech:
            metrics.proofs += 1
        if self._audio_seconds:
            endpoint.audio_seconds.inc(self._audio_seconds)
            endpoint.real_time_factor.observe((self._last_audio - self._started) / self._audio_seconds)
        usage = self._usage or Usage(completion_tokens=self._tokens)
        metrics.prompt_tokens.inc(usage.prompt_tokens)
        metrics.cached_tokens.inc(usage.cached_tokens)
        metrics.generation_tokens.inc(usage.completion_tokens)
