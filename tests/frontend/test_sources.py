"""Media that aren't in the request, through the route, as the settings have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from support.front import client, front
from support.samples import picture

from frontend.engine.fake import FakeEngine
from frontend.settings import SettingsError, load
from omni.contract.job import MediaPart

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PATH = "/v1/chat/completions"
PICTURE = picture()


@asynccontextmanager
async def site(data: bytes = PICTURE, delay: float = 0.0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A web server on this machine: its host and port, and the requests that it had."""
    requests: list[bytes] = []
    handlers: set[asyncio.Task[None]] = set()
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())  # type: ignore[arg-type]
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await over.wait()
        if requests[-1].startswith(b"GET /again"):
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
        over.set()
        await asyncio.gather(*handlers)


def asks(*sources: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "see"}], "images": list(sources)}


async def post(app: FastAPI, *requests: dict[str, Any]) -> list[Any]:
    """The answers to some requests, one after the other; afterwards `app` holds nothing."""
    async with client(app) as http:
        answers = [await http.post(PATH, json=request) for request in requests]
    assert app.state.admission.media_bytes == 0
    assert app.state.admission.in_flight == 0
    return answers


async def refused(app: FastAPI, *sources: str, param: str = "images.0") -> tuple[str, str]:
    """Code and message of a refusal."""
    [response] = await post(app, asks(*sources))
    return error(response, param)


def error(response: Any, param: str = "images.0") -> tuple[str, str]:
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)
    return error["code"], error["message"]


async def test_a_picture_from_a_host_that_is_allowed() -> None:
    engine = FakeEngine()
    async with site() as (host, requests):
        app = front(engine, media_url_hosts=(host,))
        [response] = await post(app, asks(f"http://{host}/a.png"))
    assert response.status_code == 200
    assert engine.runs[0].job.media == (MediaPart.of("image", PICTURE, "images.0"),)
    assert len(requests) == 1


async def test_without_leave_this_machine_is_not_asked() -> None:
    async with site() as (host, requests):
        code, _ = await refused(front(media_url_ports=(int(host.split(":")[1]),)), f"http://{host}/a.png")
    assert code == "unsupported"
    assert not requests


async def test_urls_may_be_off() -> None:
    async with site() as (host, requests):
        app = front(media_urls=False, media_url_hosts=(host,))
        assert "not enabled" in (await refused(app, f"http://{host}/a.png"))[1]
    assert not requests


async def test_limits_of_fetching_are_settings() -> None:
    async with site() as (host, requests):
        app = front(media_url_hosts=(host,), max_media_item_bytes=len(PICTURE) - 1)
        assert (await refused(app, f"http://{host}/a.png"))[0] == "too_large"
        requests.clear()
        await refused(front(media_url_hosts=(host,), media_url_redirects=1), f"http://{host}/again")
        assert len(requests) == 2
    async with site(delay=30) as (host, _):
        app = front(media_url_hosts=(host,), media_url_timeout=0.1)
        assert "within 0.1 seconds" in (await refused(app, f"http://{host}/a.png"))[1]


async def test_what_is_fetched_counts_as_media() -> None:
    async with site() as (host, _):
        app = front(media_url_hosts=(host,), max_media_bytes=len(PICTURE) + 10)
        one, two = f"http://{host}/a.png", f"http://{host}/b.png"
        first, second = await post(app, asks(one), asks(one, two))
    assert first.status_code == 200
    assert second.status_code == 503
    assert second.json()["error"]["code"] == "overloaded"


async def test_fetches_wait_for_their_turn() -> None:
    async with site(delay=0.05) as (host, requests):
        app = front(media_url_hosts=(host,), media_fetches=1)
        async with client(app) as http:
            answers = await asyncio.gather(*(http.post(PATH, json=asks(f"http://{host}/a.png")) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len(requests) == 4


async def test_a_client_that_leaves_ends_its_fetch() -> None:
    async with site(delay=30) as (host, requests):
        app = front(media_url_hosts=(host,))
        async with client(app) as http:
            task = asyncio.create_task(http.post(PATH, json=asks(f"http://{host}/a.png")))
            async with asyncio.timeout(10):
                while not requests:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert app.state.admission.in_flight == 0


async def test_a_picture_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cars.png").write_bytes(PICTURE)
    (tmp_path / "notes.txt").write_text("secret")
    engine = FakeEngine()
    app = front(engine, media_folder=tmp_path)
    both = asks("cars.png", f"file://{tmp_path}/cars.png")
    good, text, missing, outside = await post(
        app, both, asks("notes.txt"), asks("none.png"), asks("cars.png", "../cars.png")
    )
    assert good.status_code == 200
    assert [part.data for part in engine.runs[0].job.media] == [PICTURE] * 2
    assert error(text)[0] == "invalid_media"
    assert "secret" not in text.text
    assert error(missing)[1] == "images.0: the file can't be read."
    assert error(outside, "images.1")[0] == "unsupported"


async def test_the_folder_is_off_by_default() -> None:
    assert "not enabled" in (await refused(front(), "cars.png"))[1]


async def test_hosts_and_ports_on_the_command_line() -> None:
    settings = load(["--media-url-hosts", "a,b:81", "--media-url-ports", "80,8080", "--no-media-urls"])
    assert settings.media_url_hosts == ("a", "b:81")
    assert settings.media_url_ports == (80, 8080)
    assert not settings.media_urls
    with pytest.raises(SettingsError):
        load(["--media-url-ports", "0"])
