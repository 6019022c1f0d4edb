from __future__ import annotations

import json

import pytest

from bench.realtime import Microphone, until_empty

pytestmark = [pytest.mark.process, pytest.mark.anyio]


class Socket:
    def __init__(self) -> None:
        self.got: list[str] = []

    async def send(self, message: str) -> None:
        self.got.append(message)


async def test_a_microphone_speaks_at_its_own_pace_and_remembers_when() -> None:
    microphone, ws = Microphone(bytes(24_000 * 2 // 10), 20), Socket()
    await microphone.speak(ws)
    assert [json.loads(one)["type"] for one in ws.got] == ["input_audio_buffer.append"] * 5
    assert microphone.sent[-1] - microphone.sent[0] >= 0.07
    assert microphone.sent_at(20) == microphone.sent[0]
    assert microphone.sent_at(20.1) == microphone.sent[1]
    assert microphone.sent_at(100) == microphone.sent[-1]


def test_stages_that_hold_nothing() -> None:
    page = 'data:text/plain,omni_stage_generations{stage="thinker"} %d'
    assert until_empty(page % 0) > 0
    with pytest.raises(SystemExit, match="still holds"):
        until_empty(page % 1, limit=0.02)
