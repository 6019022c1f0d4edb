"""`python -m frontend`: the front door as a process. Exit code 2 means that it can't run as it is set."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Sequence

import uvicorn

from frontend import logs
from frontend.app import create_app
from frontend.drain import Server
from frontend.head_limit import bounded
from frontend.settings import Settings, SettingsError, load
from omni.profile import ProfileError

_BACKLOG = 2048
_SWITCH_S = 0.001
"""How long one thread may keep others from running Python; what threads do for sessions takes less, and is urgent."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `SettingsError` when the address can't be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        raise SettingsError(f"host: {host} is not an address of this machine") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as problem:
        sock.close()
        if problem.errno == errno.EADDRINUSE:
            raise SettingsError(f"port: {port} on {host} is already taken; choose another with --port") from None
        if problem.errno == errno.EACCES:
            raise SettingsError(f"port: this user may not listen on port {port}; choose one over 1023") from None
        raise SettingsError(f"host: can't listen on {host}, port {port}") from None
    return sock


def _url(settings: Settings, sock: socket.socket) -> str:
    scheme = "https" if settings.ssl_certfile else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{sock.getsockname()[1]}{settings.root_path}"


def serve(settings: Settings) -> None:
    """Run until a signal has been obeyed. Raises `SettingsError` or `ProfileError` before anything runs."""
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=bounded(settings.max_head_bytes),
        ws="websockets-sansio",
        ws_max_size=settings.ws_max_size,
        ws_per_message_deflate=settings.ws_per_message_deflate,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        root_path=settings.root_path,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    try:
        config.load()
    except OSError:  # ssl.SSLError is one
        raise SettingsError(
            "ssl_certfile: the certificate and its key can't be read, or don't belong together"
        ) from None
    sock = listen(settings.host, settings.port)
    sys.setswitchinterval(_SWITCH_S)
    server = Server(config, app, on_started=lambda: _say(f"front door listening on {_url(settings, sock)}"))
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([sock]))


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens, or the disk is full: neither is a reason not to serve
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        settings = load(sys.argv[1:] if arguments is None else arguments)
        logs.configure(settings.log_level, settings.log_format)
        serve(settings)
    except (SettingsError, ProfileError) as problem:
        for line in str(problem).splitlines():
            sys.stderr.write(f"front door: {line}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
