"""Generations of a session, with what every generation needs around it: admission, metrics and word to the health."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from frontend.errors import INTERNAL
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import Job

log = logging.getLogger(__name__)


async def generate(state: Any, endpoint: str, job: Job) -> AsyncGenerator[Chunk, None]:
    """The chunks of `job`; `state` is the application's. Raises an `OmniError`, `Overloaded` before any work.

    What yields to every question, a prefill or a transcript, is no turn and isn't counted as one.
    """
    turn = None if job.priority < 0 else state.metrics.turn(endpoint)
    try:
        with state.admission.admit("generation"):
            async with aclosing(state.engine.generate(job)) as chunks:
                async for chunk in chunks:
                    if turn is not None:
                        turn.chunk(chunk)
                    yield chunk
    except Exception as error:
        state.health.report(error if isinstance(error, OmniError) else INTERNAL)
        if turn is not None:
            turn.fail(error)
        raise
    except BaseException:
        if turn is not None:
            turn.end("cancelled")
        raise
    else:
        if turn is not None:
            turn.end("completed")
    finally:
        if turn is not None:
            log.info("turn", extra={"endpoint": endpoint, "generation": job.id, "outcome": turn.outcome})
