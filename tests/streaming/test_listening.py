"""Where a live run is served: addresses and certificates are checked before there is a run, and what is no request takes no memory."""

from __future__ import annotations

import asyncio
import datetime
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import timelapse as tl
from tests.cli.run_cli import cli
from tests.patience import LONG
from tests.streaming.test_live import FAST
from tests.streaming.test_serve import Client, Named, Names, rows
from timelapse.errors import UsageError
from timelapse.streaming.live import Live
from timelapse.streaming.serve import app, wire
from timelapse.streaming.serve.app import Server
from timelapse.streaming.serve.listening import Listening

RULES = """
import timelapse as tl

class Hit(tl.Event):
    who: int

class Count(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e):
        self.n[e.who] += 1
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate for 127.0.0.1 and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    begin = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(begin).not_valid_after(begin.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--listen", "0.0.0.0:0"], "reachable from other machines"),
        (["--listen", "elsewhere"], "is no address"),
        (["--listen", "{taken}"], "already in use"),
        (["--listen", "nowhere.invalid:0", "--tls-cert", "{cert}", "--tls-key", "{key}"], "nowhere.invalid"),
        (["--listen", "0", "--tls-cert", "{folder}/none.pem", "--tls-key", "{key}"], "No such file"),
        (["--listen", "0", "--tls-cert", "{key}", "--tls-key", "{key}"], "--tls-cert"),
        (["--listen", "0", "--tls-key", "{key}"], "--tls-cert"),
        (["--tls-cert", "{cert}", "--tls-key", "{key}"], "--listen"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_begins_nothing(
    given: list[str], said: str, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """The run began, and had epochs and a folder, before its address was looked at; a certificate that is none was shown as a stack, and the run served nothing."""
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"ts": 1, "who": 1}\n')
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        names = {
            "taken": str(other.getsockname()[1]),
            "folder": str(tmp_path),
            "cert": pair[0],
            "key": pair[1],
        }
        options = [text.format(**names) for text in given]
        out = tmp_path / "out"
        done = cli(
            "live", f"{tmp_path}/rules.py:Count", str(out), f"Hit={tmp_path}/in", "--once", "--ahead", "any", *options
        )  # fmt: skip
    assert done.code == 2, done
    assert said in done.err
    assert "TL810" in done.err
    assert not out.exists()


def test_over_tls(tmp_path: Path, pair: tuple[str, str]) -> None:
    with tl.live(Names, {Named: tl.Push()}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, Listening("127.0.0.1:0", certificate=pair[0], key=pair[1]))
        assert server.address.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=pair[0])
        connection = http.client.HTTPSConnection(
            server.address.removeprefix("https://"), timeout=LONG, context=trusted
        )
        told = {"Authorization": f"Bearer {server.tokens['push']}"}
        connection.request("POST", "/push/Named", rows("ann", "bob"), told)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"rows": 2, "counted": 2})
        connection.close()
        server.close()


def test_a_key_with_a_password_is_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    """Who serves would be asked for it at the terminal."""
    key = serialization.load_pem_private_key(Path(pair[1]).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UsageError, match="--tls-key"):
        Listening("127.0.0.1:0", certificate=pair[0], key=str(locked))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Client]]:
    with tl.live(
        Names, {Named: tl.Push()}, tmp_path_factory.mktemp("served") / "out", idle=None, **FAST
    ) as run:
        server = Server(run, "127.0.0.1:0")
        yield run, Client(server)
        server.close()


def spoken(client: Client, *parts: bytes) -> bytes:
    """All that is answered to parts that are sent one after the other, until the server hangs up."""
    host, port = client.host.split(":")
    with socket.create_connection((host, int(port)), LONG) as at:
        found = bytearray()

        def listen() -> None:
            try:
                while part := at.recv(65536):
                    found.extend(part)
            except ConnectionResetError:
                pass

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            for part in parts:
                at.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        thread.join(LONG)
        assert not thread.is_alive(), "it is still listened to"
    return bytes(found)


MUCH = wire.MOST_ASIDE // 1024 * 8
"""Parts of a kilobyte: more than is taken."""


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ",
        b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["address", "line", "lines", "trailer", "extension"],
)  # fmt: skip
def test_a_head_without_an_end_is_refused(served: tuple[Live, Client], begin: bytes) -> None:
    line = b"a: " + 1019 * b"b" + b"\r\n" if begin.endswith(b"localhost\r\n") else 1024 * b"b"
    found = spoken(served[1], begin, *[line] * MUCH)
    assert b"besides its body" in found or b"HTTP/1.1 401" in found, found
    assert served[1].ask("/health", right="")[0] == 200


def test_a_body_may_be_much_longer(served: tuple[Live, Client]) -> None:
    """In one part, and in very many: what frames these is more than a head may be."""
    client = served[1]
    body = rows(*["a" * 1000] * 300)
    assert client.ask("/push/Named", body, right="push")[1]["counted"] == 300
    small = rows(*["b"] * 500)
    token = client.tokens["push"].encode()
    head = b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer "
    pieces = [b"1\r\n%c\r\n" % byte for byte in small] + [b"0\r\n\r\n"]
    assert 5 * len(small) > wire.MOST_ASIDE
    many = [b"".join(pieces[at : at + 999]) for at in range(0, len(pieces), 999)]
    found = spoken(client, head + token + b"\r\n\r\n", *many)
    assert b'"counted":500' in found


def test_requests_one_behind_the_other(served: tuple[Live, Client]) -> None:
    """More of them in one part than one head may have bytes: each is answered."""
    client = served[1]
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + 500 * b"a" + b"\r\n\r\n"
    last = one.replace(b"X:", b"Connection: close\r\nX:")
    count = 2 * wire.MOST_ASIDE // len(one)
    assert spoken(client, one * count + last).count(b"HTTP/1.1 200 OK") == count + 1


def test_a_client_that_offers_another_protocol(served: tuple[Live, Client]) -> None:
    """Java's offers HTTP/2 with its first request: it is answered in HTTP/1.1, and its rows count."""
    client = served[1]
    body = rows("java")
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB"}
    connection = http.client.HTTPConnection(client.host, timeout=LONG)
    connection.request(
        "POST", "/push/Named", body, {"Authorization": f"Bearer {client.tokens['push']}", **offer}
    )
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"rows": 1, "counted": 1})
    connection.close()


def test_another_protocol_is_offered_behind_a_request(served: tuple[Live, Client]) -> None:
    """Both were answered with 400, though the first had done nothing wrong."""
    client = served[1]
    body = rows("behind")
    push = b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    push += b"Authorization: Bearer " + client.tokens["push"].encode() + b"\r\n"
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    plain, offering = push + b"\r\n" + body, push + offer + b"\r\n" + body
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for parts in ((plain + plain + offering + last,), (plain, plain + offering[:-5], offering[-5:], last)):
        found = spoken(client, *parts)
        assert found.count(b"HTTP/1.1 200 OK") == 4, found
        assert found.count(b'"counted":1') == 3


def test_a_request_has_one_host(served: tuple[Live, Client]) -> None:
    """Two were taken, and what stands in front may go by the other one."""
    client = served[1]
    token = client.tokens["push"].encode()
    head = b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nHost: other\r\nAuthorization: Bearer " + token
    body = rows("twice")
    before = client.ask("/api/status")[1]["rows"]
    found = spoken(client, head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert found.startswith(b"HTTP/1.1 400"), found
    assert found.count(b"HTTP/1.1") == 1
    assert client.ask("/api/status")[1]["rows"] == before


def test_a_body_that_stalls_is_given_up(served: tuple[Live, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had sent was kept as long as it held the connection."""
    client = served[1]
    monkeypatch.setattr(app, "STALLED", 0.2)
    token = client.tokens["push"].encode()
    head = b"POST /push/Named HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nAuthorization: Bearer "
    found = spoken(client, head + token + b"\r\n\r\n" + b"{")
    assert found.startswith(b"HTTP/1.1 408"), found
    assert b"nothing was taken" in found


def test_a_client_that_hangs_up_within_a_body(served: tuple[Live, Client]) -> None:
    """It was shown in the run's terminal as an exception, with its stack."""
    run, client = served
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    server = Server(run, "127.0.0.1:0")
    try:
        token = Client(server).tokens["push"]
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/push/Named", "query_string": b"", "headers": headers,
            "client": ("127.0.0.1", 1),
        }  # fmt: skip
        asyncio.run(server._app.starlette()(scope, receive, send))
    finally:
        server.close()
    assert sent[0]["status"] == 400
    assert client.ask("/health", right="")[0] == 200
