from __future__ import annotations

from collections.abc import Iterator

import pytest

from omni.launch.server import EmbeddedTriton


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    """The real Triton with the real ensembles and the dummy stages, started once, when the first test wants it.

    A test that breaks it on purpose starts its own.
    """
    with EmbeddedTriton(profile="dummy", home=tmp_path_factory.mktemp("omni")) as server:
        yield server


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
