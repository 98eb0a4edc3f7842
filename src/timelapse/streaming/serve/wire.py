"""How the server speaks HTTP."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import httptools
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_ASIDE = 64 << 10
"""Bytes of a request's head, about: of what comes without being part of a body."""


class Protocol(HttpToolsProtocol):
    """uvicorn's with llhttp, which is in C: a request takes 0.04 ms of processor time, and 0.19 with h11. What it lacks of that is here: a bound on a head, and on the lines
    behind a body, which are kept in memory; answers to who offers another protocol."""

    _aside = 0
    """Bytes since a request has begun, its head has ended, or a part of its body has come."""
    _moved = False
    _data = b""
    _later: bytearray | None = None
    """A request that offers another protocol, and what follows it, while answers to those before it are under way."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, Together(cast(asyncio.Transport, transport))))

    def data_received(self, data: bytes) -> None:
        if self._later is not None:
            self._later += data
            self.flow.pause_reading()  # who reads the request before it has it resumed
            return
        self._data, self._moved = data, False
        super().data_received(data)
        self._data = b""
        self._aside = 0 if self._moved else self._aside + len(data)
        if self._aside > MOST_ASIDE and not self.transport.is_closing():
            self.send_400_response(f"A request has at most {MOST_ASIDE >> 10} KB besides its body.")

    def on_message_begin(self) -> None:
        self._moved = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._moved = True
        if self._offers:
            return
        if sum(name == b"host" for name, _ in self.headers) > 1:  # RFC 9112, section 3.2
            self.send_400_response("A request has one Host.")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._offers and not self.transport.is_closing():
            super().on_message_complete()

    @property
    def _offers(self) -> bool:
        """Whether the client offers another protocol than WebSocket: Java's offers HTTP/2 with its first request."""
        return self.parser.should_upgrade() and not self._should_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Decline, and answer. llhttp takes what follows for the other protocol, so h11 has the connection from here on."""
        offered = sys.exception()
        assert isinstance(offered, httptools.HttpParserUpgrade)
        head = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
        head += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self._later = bytearray(b"\r\n".join([*head, b"", self._data[offered.args[0] :]]))
        if self.cycle is None or self.cycle.response_complete:
            self._hand_over()
        else:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if last and self._later is not None and not self.transport.is_closing():
            self._hand_over()

    def _hand_over(self) -> None:
        assert self._later is not None
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        other = H11Protocol(self.config, self.server_state, self.app_state)
        other.connection_made(self.transport)
        self.transport.set_protocol(other)
        other.data_received(bytes(self._later))


class Together:
    """A transport that sends an answer's head with what follows it: who waits for the answer wakes up once, and Python's lock is asked for once less."""

    def __init__(self, under: asyncio.Transport) -> None:
        self._under, self._head = under, b""
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        """Send bytes; a head at the end of this turn of the loop at the latest."""
        if self._head:
            head, self._head = self._head, b""
            self._under.writelines([head, data])
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._send_head)
        else:
            self._under.write(data)

    def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._under.write(head)

    def close(self) -> None:
        """Send what is left, and close."""
        self._send_head()
        self._under.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)
