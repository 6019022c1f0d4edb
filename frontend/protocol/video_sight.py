"""What a session sees: frames from their message to the question about them, and what the client is told of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson
import pybase64

from frontend.protocol.evs import NearDuplicates
from frontend.protocol.frames import ECHOED, Frame, FrameBuffer, select
from frontend.protocol.video_config import SessionConfig
from frontend.protocol.video_deployment import Deployment
from omni.contract.errors import InvalidMedia, OmniError, Overloaded, TooLarge

log = logging.getLogger(__name__)

MAX_ECHO_BYTES: Final = 4096
"""JSON of the fields of a frame that its client gets back."""

QUICK_BYTES: Final = 256 * 1024
"""Bytes whose digest is made in less than a millisecond."""

Event = Mapping[str, Any]


class Sight:
    """The frames of one session. Every frame that `read` returns must go to `take`, or to `close`."""

    def __init__(self, config: SessionConfig, deployment: Deployment) -> None:
        self._config = config
        self._deployment = deployment
        self._limits = deployment.limits
        self._count = 0
        self._filter = NearDuplicates(config.frame_filter_threshold) if config.enable_frame_filter else None
        self._newest: Frame | None = None
        """The newest frame when the filter dropped it."""
        self.named = False
        """Whether some frame had an id."""
        self.frames = FrameBuffer(config.max_frames, self._limits.frames_bytes, halve=deployment.prefill)

    def read(self, data: Any, event: Mapping[str, Any], now: float) -> Frame:
        """The frame of a message with this `data`. Raises an `OmniError` whose message is for the client."""
        if not isinstance(data, str):
            raise InvalidMedia("Invalid image data")
        if len(data) > self._limits.frame_chars:
            raise TooLarge("Frame too large")
        meta = {name: event.get(name) for name in ECHOED}
        try:
            # As deep as it is when it is sent back.
            if len(orjson.dumps({"frames": [meta]})) > MAX_ECHO_BYTES:
                raise TooLarge(f"The fields of a frame besides data may have {MAX_ECHO_BYTES} bytes")
            encoded = pybase64.b64decode(data, validate=True)
        except (ValueError, TypeError):  # also of what can't be written as JSON again
            raise InvalidMedia("Invalid image data") from None
        frame = Frame(self._count + 1, encoded, meta, now * 1000)
        if not self._deployment.budget.take(frame.size):
            raise Overloaded("The server holds too many frames; this one was not taken")
        self._count += 1
        return frame

    def look(self, frame: Frame) -> Callable[[], Any]:
        """What has to be done for `take`."""
        return partial(self._deployment.look, frame.data, self._filter is not None)

    def is_quick(self, frame: Frame) -> bool:
        """Whether `look` takes less time than asking a worker for it: the picture isn't decoded."""
        return self._filter is None and len(frame.data) <= QUICK_BYTES

    def take(self, frame: Frame, result: Any) -> Iterator[Event]:
        """A worker has looked at a frame: keep it or not. What the client is told."""
        if isinstance(result, BaseException):
            yield from self._refuse(frame)
            return
        frame.digest, thumbnail = result
        self.named |= bool(frame.meta["frame_id"])
        if self._filter is not None and not self._filter.keep(thumbnail):
            self._deployment.on_frame("filtered")
            self._replace_newest(frame)
            yield from self._acknowledge(frame, accepted=False, reason="filtered")
            return
        self._deployment.on_frame("kept")
        self._replace_newest(None)
        gone = self.frames.append(frame)
        self.release(gone)
        if gone and self._deployment.prefill:
            log.warning("the frame buffer is full; its older half was dropped", extra={"frames": len(gone)})
        dropped = {"dropped_frame_id": gone[0].meta["frame_id"]} if gone else {}
        yield from self._acknowledge(frame, accepted=True, **dropped)

    def question(self) -> list[Frame]:
        """The frames that a question now is about."""
        frames = list(self.frames)
        if self._newest is not None and self._limits.keep_newest:
            frames.append(self._newest)
        if self._deployment.prefill:
            return frames
        return select(frames, self._config.num_frames, self._config.frame_sampling)

    def undecodable(self, param: str | None, asked: Iterable[Frame]) -> Frame | None:
        """Let go of a frame that the stages can't decode, named by its `param`, and of its copies; None if it is none
        of the frames that were `asked` about."""
        bad = next((frame for frame in asked if frame.param == param), None)
        if bad is not None:
            self._deployment.on_frame("failed")
            self.release(self.frames.remove(bad.digest))
            if self._newest is not None and self._newest.digest == bad.digest:
                self._replace_newest(None)
        return bad

    def release(self, frames: Iterable[Frame]) -> None:
        """These frames are held no longer."""
        for frame in frames:
            self._deployment.budget.give(frame.size)

    def close(self) -> None:
        self._replace_newest(None)
        self.release(self.frames.clear())

    def _replace_newest(self, frame: Frame | None) -> None:
        if self._newest is not None:
            self.release([self._newest])
        self._newest = frame

    def _refuse(self, frame: Frame) -> Iterator[Event]:
        """Without the filter, frames are acknowledged as if nobody had looked at them yet."""
        self._deployment.on_frame("failed")
        self.release([frame])
        if self._filter is None:
            yield from self._acknowledge(frame, accepted=True, more=1)
            yield error("Frame decode failed", InvalidMedia.code)
        else:
            yield error("Invalid image data", InvalidMedia.code)

    def _acknowledge(self, frame: Frame, *, accepted: bool, more: int = 0, **fields: Any) -> Iterator[Event]:
        id = frame.meta["frame_id"]
        if isinstance(id, str) and id:
            yield {
                "type": "video.frame.ack",
                "frame_id": id,
                "pts_ms": frame.meta["pts_ms"],
                "capture_ts_ms": frame.meta["capture_ts_ms"],
                "accepted": accepted,
                "buffered_frames": len(self.frames) + more,
                "server_receive_ts_ms": frame.received_ms,
                **fields,
            }


def error(message: str, code: str = "invalid_request", *, fatal: bool = False) -> Event:
    """An error as the protocol shows it; a `fatal` one ends the session."""
    return {"type": "error", "message": message, "code": code, "fatal": fatal}


def refusal(problem: OmniError) -> Event:
    """A message of the client that wasn't obeyed."""
    return error(problem.message, problem.code)
