"""Headless Chromium, driven by its DevTools protocol: no driver, no package, only what Debian ships."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--mute-audio", "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream", "--remote-debugging-port=0",
)  # fmt: skip


def chromium() -> str | None:
    """The program, where it is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One Chromium with a folder of its own. A context manager that leaves nothing behind."""

    def __init__(self, home: Path, *flags: str) -> None:
        program = chromium()
        assert program is not None
        self._port = home / "DevToolsActivePort"
        home.mkdir(parents=True, exist_ok=True)
        self._log = (home / "log").open("wb")
        run = [program, *FLAGS, *flags, f"--user-data-dir={home}", "about:blank"]
        self.process = subprocess.Popen(run, stdout=self._log, stderr=self._log)

    def page(self, width: int = 1000, height: int = 800) -> Page:
        """A new tab."""
        deadline = time.monotonic() + 60
        while not (self._port.exists() and self._port.read_text().count("\n")):
            assert self.process.poll() is None, "the browser ended"
            assert time.monotonic() < deadline, "the browser didn't start"
            time.sleep(0.05)
        address = f"http://127.0.0.1:{self._port.read_text().splitlines()[0]}/json/new?about:blank"
        with urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=60) as answer:
            target = json.load(answer)
        page = Page(target["webSocketDebuggerUrl"])
        page.size(width, height)
        return page

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


class Page:
    """One tab. `complaints` are its errors, and whatever its security policy refused."""

    def __init__(self, url: str) -> None:
        self._held = contextlib.ExitStack()
        self._socket = self._held.enter_context(connect(url, max_size=None, open_timeout=60))
        self._ids = itertools.count(1)
        self._served: dict[str, dict[str, Any]] = {}
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """A method of the DevTools protocol; its result."""
        id = self._send(method, params)
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            self._note(message)
            if message.get("id") == id:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def _send(self, method: str, params: dict[str, Any]) -> int:
        id = next(self._ids)
        self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        return id

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.complaints.append(str([one.get("value") for one in params["args"]]))
            case "Fetch.requestPaused":
                answer = self._served[urlsplit(params["request"]["url"]).path]
                self._send("Fetch.fulfillRequest", {"requestId": params["requestId"], **answer})

    def serve(self, path: str, body: str, media_type: str) -> None:
        """Answer requests for a path in the place of every server."""
        headers = [{"name": "Content-Type", "value": media_type}]
        encoded = base64.b64encode(body.encode()).decode()
        self._served[path] = {"responseCode": 200, "responseHeaders": headers, "body": encoded}
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"} for path in self._served])

    def before(self, script: str) -> None:
        """Run a script ahead of the own ones of each page that is loaded from now on."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true; its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, (
                f"never: {expression}\n{self.complaints}\n{self.evaluate('document.body.innerText')}"
            )
            time.sleep(0.05)
        return value

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)
            more = {}

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Files for an input of the page."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, x: int, y: int, files: Sequence[Path]) -> None:
        """Files onto a place of the page."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Page.close")
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
