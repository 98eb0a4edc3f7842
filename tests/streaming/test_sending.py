"""Rows over a WebSocket: each message is answered once it is durable, and counts once."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

import timelapse as tl
from tests.patience import LONG, until
from tests.streaming.test_live import FAST, Hit, Plain, hits
from tests.streaming.test_serve import Named, Names, rows
from timelapse.errors import SourceError
from timelapse.streaming.live import Live
from timelapse.streaming.serve.app import Server
from timelapse.streaming.serve.sending import Conversation
from timelapse.streaming.sources.push import Push


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, Server]]:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    with tl.live(Names, {Named: tl.Push()}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        yield run, server
        server.close()


@contextmanager
def sender(
    server: Server, path: str = "/push/Named", right: str = "push", **headers: str
) -> Iterator[ClientConnection]:
    sent = {
        "Authorization": f"Bearer {server.tokens[right]}",
        **{n.replace("_", "-"): v for n, v in headers.items()},
    }
    with connect(server.address.replace("http", "ws", 1) + path, additional_headers=sent) as socket:
        yield socket


@contextmanager
def set_at_last(event: threading.Event) -> Iterator[None]:
    """Whatever fails, nobody goes on waiting for it."""
    try:
        yield
    finally:
        event.set()


def answer(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=LONG))


def test_each_message_is_answered_in_order(served: tuple[Live, Server]) -> None:
    run, server = served
    with sender(server) as socket:
        for n in range(200):
            socket.send(rows("ann", "bob", start=10 * n + 1).decode())
            if n == 100:
                socket.send('{"ts": 5, "name": 7, "size": 1}')
                socket.send("no row at all")
        answers = [answer(socket) for _ in range(202)]
        assert [a["message"] for a in answers] == list(range(1, 203))
        assert [n for n, a in enumerate(answers) if "error" in a] == [101, 102]
        assert "size" in answers[101]["error"] or "name" in answers[101]["error"]
        assert all(a["counted"] == 2 for a in answers if "error" not in a)
        table = pa.table({"ts": [10_000, 10_001], "name": ["eve", "end"], "size": [1, 1]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        socket.send(sink.getvalue().to_pybytes())
        assert answer(socket) == {"message": 203, "counted": 2}
        socket.send(b"no stream of Arrow's")
        assert "Arrow" in answer(socket)["error"]
    run.until(lambda e: e.end_seq == 401)
    assert [e.ts for e in run.journal().events(Named)] == [
        *(10 * n + k for n in range(200) for k in (1, 2)),
        10_000,
    ]
    assert run.parity().same


def test_who_was_cut_off_sends_again(served: tuple[Live, Server]) -> None:
    """Messages of a key are numbered: one that was durable counts once, whatever its sender has heard."""
    run, server = served
    messages = [rows("ann", start=n + 1).decode() for n in range(12)]
    with sender(server, Idempotency_Key="device 7") as socket:
        for message in messages[:8]:
            socket.send(message)
        assert [answer(socket)["counted"] for _ in range(3)] == [1, 1, 1]
        run.until(lambda e: e.end_seq == 7)  # all eight are there; five answers are lost
    with sender(server, "/push/Named?first=4", Idempotency_Key="device 7") as socket:
        for message in messages[3:]:
            socket.send(message)
        found = [answer(socket) for _ in range(9)]
    assert [a["message"] for a in found] == list(range(4, 13))
    assert [a["counted"] for a in found] == [0] * 5 + [1] * 4
    with sender(server, Idempotency_Key="device 8") as socket:
        socket.send(rows("end", start=90).decode())
        assert answer(socket)["counted"] == 1
    run.until(lambda e: e.end_seq == 12)
    assert run.get("n", "ann") == 0
    assert sum(p.rows for p in run.last.partitions) == 13 if run.last else False


def test_who_may_send(served: tuple[Live, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not is told, and the run's terminal is not filled with errors."""
    _, server = served
    errors: list[Any] = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda *told: errors.append(told))
    for path, right, headers, status in (
        ("/push/Named", "read", {}, 401),
        ("/push/Nobody", "push", {}, 404),
        ("/push/Named/other", "push", {}, 404),
        ("/push/Named?first=x", "push", {}, 400),
        ("/push/Named", "push", {"Origin": "http://evil.example"}, 403),
        ("/push/Named", "push", {"Idempotency_Key": "x" * 201}, 400),
    ):
        with pytest.raises(InvalidStatus) as caught, sender(server, path, right, **headers):
            raise AssertionError
        assert caught.value.response.status_code == status
        assert b"error" in (caught.value.response.body or b"")
    with sender(server, "/push/Named", "push") as socket:
        socket.send(rows("ann").decode())
        assert json.loads(socket.recv(LONG))["counted"] == 1
    assert not errors


def test_a_sender_is_not_listened_to_beyond_what_waits(
    served: tuple[Live, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk does not answer, what waits of one sender is bounded; then all of it counts, in order."""
    run, server = served
    go_on, taken = threading.Event(), list[int]()
    write, sending = Push._put, Push.sending

    def slow(self: Push, new: Any) -> None:
        go_on.wait(LONG)
        write(self, new)

    def counted(self: Push, *args: Any, **options: Any) -> Any:
        taken.append(1)
        return sending(self, *args, **options)

    monkeypatch.setattr(Push, "_put", slow)
    monkeypatch.setattr(Push, "sending", counted)
    with set_at_last(go_on), sender(server) as socket:

        def send() -> None:
            for n in range(300):
                socket.send(rows("ann", start=n + 1).decode())

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: len(taken) >= 60, run)
        time.sleep(0.2)  # more would be taken meanwhile
        assert 60 <= len(taken) <= 70
        go_on.set()
        assert [answer(socket) for _ in range(300)] == [{"message": n + 1, "counted": 1} for n in range(300)]
        thread.join()
    run.until(lambda e: e.end_seq == 299)


def test_who_leaves_while_the_most_waits_is_let_go(
    served: tuple[Live, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, server = served
    go_on, held, taken = threading.Event(), list[int](), list[int]()
    write, hold, sending = Push._put, Conversation.hold, Push.sending

    def slow(self: Push, new: Any) -> None:
        go_on.wait(LONG)
        write(self, new)

    def taking(self: Push, *args: Any, **options: Any) -> Any:
        taken.append(1)
        return sending(self, *args, **options)

    async def counted(self: Conversation) -> None:
        held.append(1)
        try:
            await hold(self)
        finally:
            held.append(-1)

    monkeypatch.setattr(Push, "_put", slow)
    monkeypatch.setattr(Push, "sending", taking)
    monkeypatch.setattr(Conversation, "hold", counted)
    with set_at_last(go_on), sender(server) as socket:
        socket.close_timeout = 0.1
        for n in range(100):
            socket.send(rows("ann", start=n + 1).decode())
        until(lambda: len(taken) >= 66, run)
    until(lambda: held == [1, -1], run)
    run.until(lambda e: e.end_seq >= 63)  # what it sent counts


def test_streams_of_what_arrow_does_not_have_are_answered(served: tuple[Live, Server]) -> None:
    """Whatever comes, the conversation goes on."""
    _, server = served
    table = pa.table({"ts": [10], "name": ["eve"], "size": [1]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data, kinds = sink.getvalue().to_pybytes(), set[str]()
    rng = random.Random(3)
    with sender(server) as socket:
        for _ in range(400):
            some = bytearray(data)
            for _ in range(rng.randint(1, 6)):
                some[rng.randrange(len(some))] = rng.randrange(256)
            socket.send(bytes(some))
            kinds.add(answer(socket).get("error", "")[-40:])
        socket.send(rows("end", start=90).decode())
        assert answer(socket) == {"message": 401, "counted": 1}
    assert any("not implemented" in text for text in kinds)


def test_what_is_sent_while_the_stream_is_closed_is_answered(tmp_path: Path) -> None:
    """Counted or refused, and at once: rows could wait behind the last ones that were written."""
    for _ in range(20):
        push = tl.Push()
        with tl.live(Plain, {Hit: push}, tmp_path / uuid.uuid4().hex, **FAST) as run:
            counted: list[int] = []
            refused: list[Any] = []

            def send(
                push: tl.Push = push, counted: list[int] = counted, refused: list[Any] = refused
            ) -> None:
                for n in range(10_000):
                    try:
                        counted.append(push.send(hits(1, n), timeout=LONG))
                    except SourceError as error:
                        refused.append(error)
                        return

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            until(lambda counted=counted: counted, run, look=0)  # type: ignore[misc]
            push.close()
            for thread in threads:
                thread.join()
            assert len(refused) == 4
            assert run.wait(LONG)
            assert run.last is not None
            assert sum(p.rows + p.late for p in run.last.partitions) >= sum(counted)
