from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support.launched import Launched

from omni.launch.server import EmbeddedTriton

settings.register_profile("repeatable", derandomize=True, deadline=None)
"""The same inputs in every run, whatever else the machine does: a run says something about a change, not about luck."""
settings.register_profile("search", max_examples=2_000, deadline=None)
"""Other inputs each time. A find belongs into the tests as an example."""
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    """The real Triton with the real ensembles and the dummy stages, started once, when the first test wants it.

    A test that breaks it on purpose starts its own.
    """
    with EmbeddedTriton(profile="dummy", home=tmp_path_factory.mktemp("omni")) as server:
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """The whole server as `make serve` starts it, with the dummy stages, for all tests that break nothing."""
    with Launched("serve", tmp_path_factory.mktemp("server"), "--profile", "dummy") as launched:
        yield launched.ready()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
