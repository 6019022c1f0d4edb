"""What the metrics say of decoding."""

from __future__ import annotations

import pytest

from omni.contract.errors import InvalidMedia
from omni.stages.media import clock
from omni.stages.media.image import decode_image

pytestmark = pytest.mark.pure


def test_what_is_decoded_is_counted_and_so_is_what_is_broken() -> None:
    before, spent = clock.DECODED["image"], clock.SECONDS["image"]
    decode_image(b"P6 1 1 255 abc")
    with pytest.raises(InvalidMedia):
        decode_image(b"P6 1 1")
    assert clock.DECODED["image"] == before + 2
    assert clock.SECONDS["image"] > spent
