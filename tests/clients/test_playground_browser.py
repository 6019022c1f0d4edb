"""The page at `/` in headless Chromium, with a camera that shows scenes and a microphone that hears a synthesiser.

What the page plays is recorded; the dummy stages' speech can be read back from it, and shows any sample that is
missing. Pictures of each state are left in the test's temporary folder.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from support.browser import Browser, Page, chromium
from support.front import front, serving, until
from support.launched import Launched
from support.loudspeaker import Clip, clips, record
from websockets.asyncio.client import connect

from bench.voice import speak
from omni.contract.names import CODEC_FRAME_SAMPLES, SAMPLE_RATE
from omni.stages.dummy.tones import decode

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(chromium() is None, reason="Chromium isn't installed (apt-get install chromium)"),
]

TOLD = """
window.said = [];
{
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    const event = JSON.parse(data);
    window.said.push({ ...event, audio: event.audio?.length, data: event.data?.length });
    return send.call(this, data);
  };
}
"""
"""What the page tells the server."""

LONG = " ".join(f"word{n}" for n in range(200))
"""Said in 12 seconds."""

LATENCY_MS = 1_000
"""More than any sound card's."""


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mic.wav: a question after a second. camera.y4m: a scene per second. photo.png; clip.webm, with sound."""
    folder = tmp_path_factory.mktemp("media")
    quiet = b"\0\0" * SAMPLE_RATE
    with wave.open(str(folder / "mic.wav"), "wb") as mic:
        mic.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        mic.writeframes(quiet + speak("Stop. What is the capital of France?").pcm + 20 * quiet)
    scenes = [np.random.default_rng(n).integers(0, 255, (6, 8), np.uint8).repeat(40, 0).repeat(40, 1) for n in range(4)]
    grey = np.full(120 * 160 * 2, 128, np.uint8).tobytes()
    with (folder / "camera.y4m").open("wb") as camera:
        camera.write(b"YUV4MPEG2 W320 H240 F10:1 Ip A1:1 C420\n")
        for scene in scenes:
            camera.write((b"FRAME\n" + scene.tobytes() + grey) * 10)
    with av.open(str(folder / "clip.webm"), "w") as clip:
        stream = clip.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        sound = clip.add_stream("libopus", rate=48_000, layout="mono")
        tone = np.sin(2 * np.pi * 440 / 48_000 * np.arange(3 * 48_000, dtype=np.float32)) / 2
        heard = av.AudioFrame.from_ndarray(tone[None], format="flt", layout="mono")
        heard.sample_rate = 48_000
        for piece in av.AudioResampler("flt", "mono", 48_000, 960).resample(heard):
            clip.mux(sound.encode(piece))
        clip.mux(sound.encode(None))
        for n in range(30):
            clip.mux(stream.encode(av.VideoFrame.from_ndarray(np.stack([scenes[n // 10]] * 3, -1), "rgb24")))
        clip.mux(stream.encode(None))
    Image.new("RGB", (64, 48), (200, 40, 40)).save(folder / "it's a photo.png")
    return folder


@pytest.fixture(scope="module")
def browser(media: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    flags = (
        f"--use-file-for-fake-audio-capture={media / 'mic.wav'}%noloop",
        f"--use-file-for-fake-video-capture={media / 'camera.y4m'}",
    )
    with Browser(tmp_path_factory.mktemp("chromium"), *flags) as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page() as opened:
        permit(opened, "granted")
        yield opened


def permit(page: Page, setting: str) -> None:
    for name in ("microphone", "camera"):
        page.call("Browser.setPermission", permission={"name": name}, setting=setting)


def visit(page: Page, url: str, panel: str = "talk") -> None:
    record(page)
    page.before(TOLD)
    page.go(f"{url}/#{panel}")
    page.until("document.documentElement.dataset.ready && document.querySelector('#health').dataset.state === 'ready'")


def write(page: Page, panel: str, text: str) -> None:
    """Type into the panel's field and press Enter."""
    page.evaluate(f"document.querySelector('#{panel} [name=text]').focus()")
    page.type(text)
    page.press("Enter", 13, "\r")


def text(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))


def said(clip: Clip) -> str:
    """What a clip said, as far as it was played."""
    whole = len(clip.pcm) // CODEC_FRAME_SAMPLES * CODEC_FRAME_SAMPLES
    assert clip.cut or whole == len(clip.pcm)
    return decode(clip.pcm[:whole], partial=clip.cut)


def told(page: Page, kind: str) -> list[dict[str, Any]]:
    return [event for event in page.evaluate("window.said") if event["type"] == kind]


def test_talk_with_an_interruption(server: Launched, page: Page, tmp_path: Path) -> None:
    visit(page, server.url)
    page.screenshot(tmp_path / "talk-idle.png")
    write(page, "talk", LONG)
    answers = "document.querySelectorAll('#talk .bubble.answer')"
    page.until(f"{answers}[0]?.innerText.includes('first sound')")
    page.screenshot(tmp_path / "talk-answering.png")

    page.click("#talk [data-do=start]")
    page.until("document.querySelector('#talk [data-do=mute]').disabled === false")
    page.until("Number(document.querySelector('#talk .level').getAttribute('aria-valuenow')) > 5")
    page.until(f"{answers}[0].dataset.state === 'interrupted'")
    page.screenshot(tmp_path / "talk-interrupted.png")
    page.until("window.said.some((event) => event.type === 'conversation.item.truncate')")
    (truncated,) = told(page, "conversation.item.truncate")

    page.until(f"{answers}[1]?.dataset.state === 'done'")
    page.screenshot(tmp_path / "talk-answered.png")
    cut, complete = clips(page)
    assert (cut.cut, complete.cut) == (True, False)
    heard_ms = len(cut.pcm) * 1_000 / SAMPLE_RATE
    assert heard_ms - LATENCY_MS < truncated["audio_end_ms"] <= heard_ms
    first, second = said(cut), said(complete)
    assert first
    whole = str(page.evaluate(f"{answers}[0].querySelector('.words').textContent"))
    assert whole.endswith(LONG)
    assert whole.startswith(first)
    assert first != whole
    assert second == page.evaluate(f"{answers}[1].querySelector('.words').textContent")
    assert second.startswith("Received turn 2: ")
    page.until("document.querySelectorAll('#talk .bubble.user')[1].textContent.includes('Transcribe')")
    assert page.evaluate("document.querySelectorAll('#token-plot rect').length") == 2
    assert told(page, "input_audio_buffer.append")[0]["audio"] == 4 * 960 * 2 / 3

    page.click("#talk [data-do=mute]")
    assert page.evaluate("document.querySelector('#talk [data-do=mute]').getAttribute('aria-pressed')") == "true"
    page.click("#talk [data-do=start]")
    page.until("document.querySelector('#talk [data-do=start]').textContent === 'Start talking'")
    assert page.complaints == []


def test_watch_the_camera_and_a_file(server: Launched, page: Page, media: Path, tmp_path: Path) -> None:
    visit(page, server.url, "watch")
    page.screenshot(tmp_path / "watch-idle.png")
    write(page, "watch", "What is this?")
    assert "Start the camera" in text(page, "#watch .notice")
    page.click("#watch [data-do=camera]")
    marked = "document.querySelectorAll('#watch li[data-state={}]').length"
    page.until(f"{marked.format('kept')} > 1 && {marked.format('dropped')} > 0")
    page.until("document.querySelector('#watch .notice').hidden")
    write(page, "watch", "What is this?")
    page.until("document.querySelector('#watch .bubble.answer')?.dataset.state === 'done'")
    page.screenshot(tmp_path / "watch-answered.png")
    answer = text(page, "#watch .bubble.answer .words")
    assert "image" in answer
    assert "What is this?" in answer
    assert [said(clip) for clip in clips(page)] == [answer]
    assert page.evaluate("document.querySelectorAll('#watch li[data-used]').length") == int(
        text(page, "#watch [data-count=used]")
    )
    assert answer.count("image") == int(text(page, "#watch [data-count=used]"))
    page.click("#watch [data-do=stop]")

    page.drop(400, 300, [media / "clip.webm"])
    page.until(f"{marked.format('kept')} === 3")
    page.until("document.querySelector('#watch .state').textContent.includes('over')")
    write(page, "watch", "What is this?")
    answers = "document.querySelectorAll('#watch .bubble.answer')"
    page.until(f"{answers}[1]?.dataset.state === 'done'")
    page.screenshot(tmp_path / "watch-file.png")
    (sound,) = told(page, "audio.chunk")
    assert sound["data"] == pytest.approx(3 * 16_000 * 2 * 4 / 3, rel=0.02)
    assert "audio " in str(page.evaluate(f"{answers}[1].innerText"))
    assert page.complaints == []


def test_chat_with_files_and_its_code(server: Launched, page: Page, media: Path, tmp_path: Path) -> None:
    visit(page, server.url, "chat")
    page.screenshot(tmp_path / "chat-idle.png")
    page.drop(400, 300, [media / "it's a photo.png", media / "clip.webm"])
    page.until("document.querySelectorAll('#chat .attachments li').length === 2")
    page.evaluate("document.querySelector('#chat [name=text]').focus()")
    page.type('Is "this" $5, `or` a \\ ?')
    page.click("#chat summary")
    page.screenshot(tmp_path / "chat-draft.png")
    curl = text(page, "#chat code")
    page.click("#chat [data-code=python]")
    python = text(page, "#chat code")
    page.click("#chat summary")
    page.press("Enter", 13, "\r")
    page.until("document.querySelector('#chat .bubble.answer')?.dataset.state === 'done'")
    answer = text(page, "#chat .bubble.answer .words")
    assert "image 64x48" in answer
    assert "video" in answer
    assert 'text: Is "this" $5, `or` a \\ ?' in answer
    audio = "document.querySelector('#chat .bubble.answer audio')"
    page.until(f"{audio}.duration > 0")
    assert [said(clip) for clip in clips(page)] == [answer]
    page.screenshot(tmp_path / "chat-answered.png")
    assert page.complaints == []

    run = {"cwd": media, "capture_output": True, "text": True, "check": True, "timeout": 60}
    shell = subprocess.run(["bash", "-c", curl], **run)
    deltas = [json.loads(line[6:])["choices"] for line in shell.stdout.splitlines() if line.startswith("data: {")]
    assert "".join(delta[0]["delta"].get("content") or "" for delta in deltas if delta) == answer
    assert subprocess.run([sys.executable, "-c", python], **run).stdout == answer


def test_a_phone_in_the_dark_and_a_keyboard(server: Launched, page: Page, tmp_path: Path) -> None:
    page.size(360, 740)
    page.scheme("dark")
    visit(page, server.url)
    page.evaluate("document.querySelector('#tab-talk').focus()")
    for panel in ("talk", "watch", "chat"):
        assert page.evaluate(f"!document.querySelector('#{panel}').hidden")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate("document.documentElement.scrollHeight") <= 740
        page.screenshot(tmp_path / f"phone-{panel}.png")
        page.press("ArrowRight", 39)
    assert page.evaluate("document.activeElement.id") == "tab-talk"
    page.press("Tab", 9)
    assert page.evaluate("document.activeElement.id") == "voice"
    assert page.complaints == []


def test_a_microphone_that_is_denied(server: Launched, page: Page, tmp_path: Path) -> None:
    permit(page, "denied")
    visit(page, server.url)
    page.click("#talk [data-do=start]")
    page.until("document.querySelector('#talk .notice').textContent.includes('The microphone is blocked')")
    page.screenshot(tmp_path / "denied.png")
    page.click("#tab-watch")
    page.click("#watch [data-do=camera]")
    page.until("document.querySelector('#watch .notice').textContent.includes('The camera is blocked')")
    assert page.complaints == []


@pytest.mark.anyio
async def test_a_server_that_asks_for_a_key_or_is_busy(page: Page, tmp_path: Path) -> None:
    def without_a_key(url: str) -> None:
        visit(page, url)
        page.until("document.querySelector('#key-button').hasAttribute('data-wanted')")
        write(page, "talk", "one")
        page.until("document.querySelector('#talk .notice').textContent.includes('asks for an API key')")
        page.screenshot(tmp_path / "key-wanted.png")
        page.click("#key-button")
        page.screenshot(tmp_path / "key-dialog.png")
        page.type("secret")
        page.press("Enter", 13, "\r")
        page.until("!document.querySelector('#key-button').hasAttribute('data-wanted')")

    def with_a_key() -> None:
        write(page, "talk", "one")
        page.until("document.querySelector('#talk .bubble.answer')?.dataset.state === 'done'")
        page.click("#tab-chat")
        write(page, "chat", "two words")
        page.until("document.querySelector('#chat .bubble.answer')?.dataset.state === 'done'")
        assert text(page, "#chat .bubble.answer .words") == "two words"
        assert "$OMNI_API_KEY" in text(page, "#chat code")
        assert "secret" not in page.evaluate("document.documentElement.outerHTML")

    def while_busy() -> None:
        page.click("#tab-watch")
        page.click("#watch [data-do=camera]")
        page.until("document.querySelector('#watch .notice').textContent.includes('The server is busy')")
        page.screenshot(tmp_path / "busy.png")

    app = front(api_keys="secret", max_sessions=1)
    async with serving(app) as running:
        await asyncio.to_thread(without_a_key, running.url)
        await asyncio.to_thread(with_a_key)
        await asyncio.to_thread(page.go, f"{running.url}/?again#watch")
        await until(lambda: app.state.admission.sessions == 0)
        headers = {"authorization": "Bearer secret"}
        async with connect(f"ws://127.0.0.1:{running.port}/v1/realtime", additional_headers=headers):
            await asyncio.to_thread(while_busy)
