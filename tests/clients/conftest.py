from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.launched import Launched


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """The whole server as `make serve` starts it, with the dummy stages."""
    with Launched("serve", tmp_path_factory.mktemp("server"), "--profile", "dummy") as launched:
        yield launched.ready()
