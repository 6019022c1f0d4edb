"""The largest head of an HTTP request. uvicorn's fast parser has no limit of its own: a head would grow for as long as
a client goes on sending it."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeadTooLarge(ValueError):
    """Inside the parser's callback: the connection is answered with 400 and closed."""


def bounded(limit: int) -> type[HttpToolsProtocol]:
    """uvicorn's HTTP protocol, for heads of up to `limit` bytes. A larger one is answered with 400, or hung up on when
    it isn't complete."""

    class Bounded(HttpToolsProtocol):
        _in_head = True
        _head = 0
        """Bytes of the head that came in pieces."""
        _headers = 0
        """Bytes of the head's complete headers."""

        def on_message_begin(self) -> None:
            self._in_head, self._headers = True, 0
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            self._headers += len(name) + len(value)
            if self._headers > limit:
                raise HeadTooLarge
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head, self._head = False, 0
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_head and not self.transport.is_closing():
                self._head += len(data)
                if self._head > limit:
                    self.transport.close()

    return Bounded
