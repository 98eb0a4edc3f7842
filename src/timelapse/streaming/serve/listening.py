"""Where a server listens: checked, and taken, before there is anything to serve."""

from __future__ import annotations

import socket
import ssl
from typing import Self

from timelapse.errors import UsageError

LOCAL = ("localhost", "127.0.0.1", "::1")


class Listening:
    """An address of this machine, held until `close`. Only localhost is taken without a certificate.

    Raises UsageError for an address that is none, is taken, or is reachable from other machines without TLS, and for a certificate that cannot be used.
    """

    def __init__(self, listen: str, *, certificate: str | None = None, key: str | None = None) -> None:
        self.host, port = host_and_port(listen)
        self.certificate, self.key = certificate, key
        if certificate is None and not is_local(self.host):
            raise UsageError(
                f"--listen {listen} is reachable from other machines", code="TL810",
                hint="give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy",
            )  # fmt: skip
        check_pair(certificate, key)
        self.socket = _bound(self.host, port, listen)
        scheme, shown = (
            "http" if certificate is None else "https",
            f"[{self.host}]" if ":" in self.host else self.host,
        )
        self.address = f"{scheme}://{shown}:{self.socket.getsockname()[1]}"

    def close(self) -> None:
        """Let go of it."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def listening(listen: str | None, certificate: str | None, key: str | None) -> Listening | None:
    """What options ask for; None where nothing is to be served. Raises UsageError."""
    if listen is not None:
        return Listening(listen, certificate=certificate, key=key)
    if certificate is not None or key is not None:
        raise UsageError(
            "--tls-cert and --tls-key are for what is served",
            hint="say where with --listen, or leave them out",
            code="TL810",
        )
    return None


def host_and_port(listen: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `:8080`, `8080`. Raises UsageError."""
    host, colon, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535 or (not colon and not port):
        raise UsageError(
            f"--listen {listen} is no address", hint="--listen 8080, or --listen 127.0.0.1:8080", code="TL810"
        )
    return host, int(port)


def is_local(host: str) -> bool:
    """Whether only this machine reaches a host name."""
    return host in LOCAL


def check_pair(certificate: str | None, key: str | None) -> None:
    """Raises UsageError for a certificate and a key that no server can use."""
    if certificate is None:
        if key is not None:
            raise UsageError("--tls-key is a certificate's key", hint="give --tls-cert too", code="TL810")
        return
    try:
        # Without a password of its own it would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, "")
    except OSError as error:
        raise UsageError(
            f"--tls-cert {certificate}" + ("" if key is None else f", --tls-key {key}") + f": {error.strerror or error}",
            hint="give the files of a certificate and of its key as PEM, the key without a password", code="TL810",
        ) from None  # fmt: skip


def _bound(host: str, port: int, listen: str) -> socket.socket:
    """A socket at an address; at port 0 one that is free. Raises UsageError."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # who served here just now may have open ends
    # An answer's head and body are two writes: the second would wait for the client's word that the first has come, 40 ms.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise UsageError(
            f"--listen {listen}: {error.strerror}", code="TL810", hint="give another port, or 0 for one that is free"
        ) from None  # fmt: skip
    return found
