"""A live run over HTTP: rows in, states and outputs out, and who may."""

from __future__ import annotations

import http.client
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import timelapse as tl
from tests.patience import LONG, until
from tests.streaming.test_live import FAST, hits, lines, marks
from timelapse.errors import NoSpace, UsageError
from timelapse.streaming.live import Live
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.serve import asking
from timelapse.streaming.serve.app import Server

WARM = '<script>alert("x")</script>'


class Named(tl.Event):
    name: str
    size: int


class Told(tl.Record):
    name: str
    n: int


class Names(tl.Program):
    n: tl.Counter[str]
    pairs: tl.Counter[tuple[str, int]]
    seen: tl.Set[str]
    last: tl.Value[str, float | None]
    friends: tl.SetOf[str, int]

    @tl.on(Named)
    def named(self, e: Named) -> None:
        self.n[e.name] += e.size
        self.pairs[e.name, e.size] += 1
        self.seen.add(e.name)
        self.last[e.name] = e.size / 3
        self.friends.add(e.name, e.size)
        self.emit(Told(name=e.name, n=self.n[e.name]))


class Client:
    """One server's client."""

    def __init__(self, server: Server) -> None:
        self.host = server.address.removeprefix("http://")
        self.tokens = server.tokens

    def ask(
        self, path: str, body: bytes | None = None, *, right: str = "read", method: str = "", **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, timeout=LONG)
        try:
            sent = {"Authorization": f"Bearer {self.tokens[right]}"} if right else {}
            sent |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = "json" in (answer.headers.get("content-type") or "")
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, Client]]:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(Names, {Named: push}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        yield run, Client(server)
        server.close()


def rows(*names: str, start: int = 1) -> bytes:
    return "\n".join(
        json.dumps({"ts": start + n, "name": name, "size": n}) for n, name in enumerate(names)
    ).encode()


def test_rows_in_and_states_out(served: tuple[Live, Client]) -> None:
    run, client = served
    assert client.ask("/push/Named", rows("ann", "bob", "ann", WARM, "end"), right="push") == (
        200,
        {"rows": 5, "counted": 5},
    )
    again = {"Idempotency_Key": "a"}
    more = rows("ann", "last", start=10)
    assert client.ask("/push/Named", more, right="push", **again)[1]["counted"] == 2
    assert client.ask("/push/Named", more, right="push", **again)[1]["counted"] == 0
    code, told = client.ask("/push/Named", rows("eve"), right="push", **again)
    assert (code, "other rows" in told["error"]) == (400, True)
    run.until(lambda e: e.end_seq >= 6)
    code, found = client.ask('/api/state/n?key="ann"')
    assert (code, found["value"]) == (200, 2)
    assert found["epoch"] > 0
    assert client.ask('/api/state/pairs?key=["ann",2]')[1]["value"] == 1
    assert client.ask('/api/state/seen?key="bob"')[1]["value"] is True
    assert client.ask('/api/state/seen?key="eve"')[1]["value"] is False
    assert client.ask('/api/state/last?key="bob"')[1]["value"] == 1 / 3
    assert client.ask('/api/state/friends?key="ann"')[1]["value"] == [0, 2]
    code, listed = client.ask("/api/state/n?limit=2")
    assert (len(listed["rows"]), listed["more"]) == (2, True)
    code, put_out = client.ask("/api/outputs/Told?limit=3")
    assert [r["name"] for r in put_out["rows"]] == ["ann", "end", WARM]
    code, status = client.ask("/api/status")
    assert status["state"] == "running"
    assert status["records"] == {"Told": 6}
    assert status["partitions"][0]["rows"] == 7
    code, text = client.ask("/metrics")
    assert "timelapse_rows_total 6\n" in text
    assert 'timelapse_partition_late_total{stream="Named",partition="push"} 0\n' in text
    assert client.ask("/health", right="") == (200, {"state": "running", "ok": True})


def test_why_a_row_was_put_out(served: tuple[Live, Client]) -> None:
    """Answered from the journal in another process; what that cannot answer it says."""
    run, client = served
    client.ask("/push/Named", rows("ann", WARM, "ann", "end"), right="push")
    run.until(lambda e: e.end_seq >= 3)
    first, _, last = reversed(client.ask("/api/outputs/Told")[1]["rows"])

    def why(row: dict[str, Any], **asked: Any) -> tuple[int, Any]:
        return client.ask("/api/why", json.dumps({"record": "Told", "row": row, **asked}).encode())

    code, found = why(last)
    assert code == 200, found
    assert "Named 2   name='ann', size=2" in found["text"]
    assert "n['ann'] = 2" in found["text"]
    assert found["explanation"]["event"]["outputs"] == [{"record": "Told", "fields": {"name": "ann", "n": 2}}]
    code, found = why({**first, "n": 77})
    assert code == 400
    assert "TL609" in found["error"]
    assert "retracted" in found["error"]
    for wrong in (b"{}", b"[" * 100_000, json.dumps({"record": "Told", "row": {"ts": "1"}}).encode()):
        assert client.ask("/api/why", wrong)[0] == 400
    assert why(last, depth=9)[0] == 400
    assert client.ask("/api/why", b" " * (2 << 20))[0] == 413
    assert client.ask("/api/why", b"{}", right="")[0] == 401
    assert client.ask("/api/why", b"{}", right="push")[0] in (401, 403)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for glibc's __cxa_atexit")
def test_the_process_that_answers_ends_without_destructors(tmp_path: Path) -> None:
    """A library that aborts on the way out takes no answer away."""
    code = (
        "import ctypes; c = ctypes.CDLL(None); c.__cxa_atexit(c.abort, None, None);"
        "from timelapse.streaming.serve.asking import main; main()"
    )
    row = asking.Row("Told", {"ts": 1, "phase": 3, "seq": 0, "ordinal": 0})
    question = msgspec.json.encode(asking.Question(str(tmp_path / "nowhere"), row))
    done = subprocess.run([sys.executable, "-c", code], input=question, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "nowhere" in msgspec.json.decode(done.stdout, type=asking.Answer).error


def asked(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[http.client.HTTPConnection, int]:
    """A question whose answer takes for ever, and the number of the process that is to give it."""
    began = tmp_path / "began"
    monkeypatch.setattr(asking, "__name__", "tests.streaming.slow_answer")
    monkeypatch.setenv("SLOW_ANSWER", str(began))
    connection = http.client.HTTPConnection(client.host, timeout=LONG)
    row = {"ts": 1, "phase": 3, "seq": 0, "ordinal": 0, "name": "ann", "n": 0}
    body = json.dumps({"record": "Told", "row": row})
    connection.request("POST", "/api/why", body, {"Authorization": f"Bearer {client.tokens['read']}"})
    until(lambda: began.exists() and began.read_text())
    return connection, int(began.read_text())


def await_end(number: int) -> None:
    until(lambda: not Path(f"/proc/{number}").exists(), what="the process that answers goes on")


def test_an_asker_who_leaves_ends_the_process(
    served: tuple[Live, Client], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A question takes as long as a replay: nobody pays for one that nobody waits for."""
    connection, number = asked(served[1], monkeypatch, tmp_path)
    connection.close()
    await_end(number)


def test_a_server_that_ends_says_so_to_who_has_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It showed a stack on the run's standard error, and hung up."""
    with tl.live(Names, {Named: tl.Push()}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        connection, number = asked(Client(server), monkeypatch, tmp_path)
        server.close()
        response = connection.getresponse()
        assert (response.status, "no longer" in response.read().decode()) == (503, True)
        connection.close()
        await_end(number)
    assert "Traceback" not in capfd.readouterr().err


def test_arrow_json_and_what_is_no_event(served: tuple[Live, Client]) -> None:
    run, client = served
    table = pa.table(
        {"ts": pa.array([1, 2], pa.int64()), "name": ["a", "b"], "size": pa.array([1, 2], pa.int64())}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = {"Content_Type": "application/vnd.apache.arrow.stream"}
    body = sink.getvalue().to_pybytes()
    assert client.ask("/push/Named", body, right="push", **arrow)[1] == {"rows": 2, "counted": 2}
    as_json = {"Content_Type": "application/json"}
    assert (
        client.ask("/push/Named", b'[{"ts": 3, "name": "c", "size": 1}]', right="push", **as_json)[0] == 200
    )
    for bad, headers in (
        (b'{"ts": 4, "name": "c"}\n{"ts": 5, "name": "d", "size": 1}', {}), (b"{", {}), (b"[1]", as_json), (body[:-20], arrow),
        (b"nonsense", arrow),
    ):  # fmt: skip
        code, found = client.ask("/push/Named", bad, right="push", **headers)
        assert code == 400, (bad, found)
        assert found["error"]
    _, found = client.ask("/push/Named", b'{"ts": 4, "name": "c"}', right="push")
    assert found["error"].startswith("1 row is no Named, and nothing was taken: line 1:")
    assert client.ask("/push/Named", b"x", right="push", Content_Type="image/png")[0] == 415
    assert client.ask("/push/Named", b"x", right="push", Content_Encoding="gzip")[0] == 415
    assert client.ask("/push/Nobody", b"{}", right="push")[0] == 404
    for path in (
        "/api/state/n?key=" + 3000 * "[",
        "/api/state/n?key=ann",
        '/api/state/n?key=["a"',
        "/api/state/pairs?key=3",
        "/api/outputs/Told?limit=x",
        "/api/outputs/Told?limit=-1",
        "/api/state/n?limit=-3",
        "/api/outputs/Told/stream?after=x",
        "/api/state/n?key=[]",
        '/api/state/n?key={"a":1}',
        '/api/state/pairs?key=["a","x"]',
        '/api/state/pairs?key=["a",1.5]',
    ):
        code, told = client.ask(path)
        assert code == 400, path
        assert "invalid literal" not in told["error"]
    assert client.ask("/api/state/nobody")[0] == 404
    run.until(lambda e: e.partitions[0].rows == 3)


def test_a_full_disk_and_a_sender(served: tuple[Live, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may send again later, which 500 did not say; then its rows count once."""
    client = served[1]
    real, full = LocalPlace.create, True

    def create(place: LocalPlace, name: str, data: bytes) -> None:
        if full and name.startswith("push/"):
            raise NoSpace("full")
        real(place, name, data)

    monkeypatch.setattr(LocalPlace, "create", create)
    again = {"Idempotency_Key": "a"}
    code, told = client.ask("/push/Named", rows("ann"), right="push", **again)
    assert (code, "full" in told["error"]) == (503, True)
    full = False
    assert client.ask("/push/Named", rows("ann"), right="push", **again) == (200, {"rows": 1, "counted": 1})
    assert client.ask("/push/Named", rows("ann"), right="push", **again) == (200, {"rows": 1, "counted": 0})


def test_who_may(served: tuple[Live, Client]) -> None:
    """A token for each thing; no other host, no other site; the file of tokens is its owner's."""
    run, client = served
    assert client.ask("/api/status", right="")[0] == 401
    assert client.ask("/api/status", right="push")[0] == 401
    assert client.ask("/push/Named", b"{}", right="read")[0] == 401
    assert client.ask("/api/stop", b"", right="push")[0] == 401
    assert client.ask("/api/status", right="", Authorization="Bearer é".encode().decode("latin-1"))[0] == 401
    assert client.ask("/api/status", Host="evil.example")[0] == 421
    assert client.ask("/", right="", Host="evil.example")[0] == 421
    assert client.ask("/api/status", Origin="http://evil.example")[0] == 403
    assert client.ask("/api/pause", b"", right="operate")[0] == 200
    until(lambda: run.health.state == "paused", run)
    assert client.ask("/api/resume", b"", right="operate")[0] == 200
    until(lambda: run.health.state == "running", run)
    assert client.ask("/api/stop", b"", right="operate")[0] == 200
    assert run.wait(LONG)
    mode = (run.path / "tokens.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    for wrong in ("0.0.0.0:0", "x", "127.0.0.1:99999"):
        with pytest.raises(UsageError):
            Server(run, wrong)


def test_an_address_that_is_taken(served: tuple[Live, Client]) -> None:
    """Another server there is refused, and one that has just ended leaves it free."""
    run, client = served
    with pytest.raises(UsageError, match="Address already in use"):
        Server(run, client.host)
    first = Server(run, "127.0.0.1:0")
    host = first.address.removeprefix("http://")
    assert Client(first).ask("/health", right="")[0] == 200
    first.close()
    second = Server(run, host)
    assert Client(second).ask("/health", right="")[0] == 200
    second.close()


def test_outputs_as_they_come(served: tuple[Live, Client]) -> None:
    run, client = served
    connection = http.client.HTTPConnection(client.host, timeout=LONG)
    client.ask("/push/Named", rows("a", "b", "c"), right="push")
    run.until(lambda e: e.end_seq == 2)
    connection.request(
        "GET",
        "/api/outputs/Told/stream?after=0",
        headers={"Authorization": f"Bearer {client.tokens['read']}"},
    )
    answer = connection.getresponse()
    client.ask("/push/Named", rows("d", "e", start=10), right="push")
    found: list[str] = []
    while len(found) < 4:
        line = answer.fp.readline().decode()
        if line.startswith("data: "):
            found += [r["name"] for r in json.loads(line.removeprefix("data: "))]
    assert found == ["a", "b", "c", "d"]
    connection.close()


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is there no more afterwards, nor are its pipes, also where the test fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_the_command_serves(tmp_path: Path) -> None:
    """`timelapse live --listen` in a process of its own, stopped by SIGTERM."""
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\nclass Mark(tl.Event):\n    who: int\n\n"
        "class Seen(tl.Record):\n    who: int\n    n: int\n\nclass Watch(tl.Program):\n    least: int = 3\n    n: tl.Counter[int]\n"
        "    marked: tl.Set[int]\n\n    @tl.on(Hit)\n    def hit(self, e: Hit) -> None:\n        self.n[e.who] += e.size\n"
        "        if self.n[e.who] % self.least == 0 or e.who in self.marked:\n            self.emit(Seen(who=e.who, n=self.n[e.who]))\n\n"
        "    @tl.on(Mark, after=50)\n    def mark(self, e: Mark) -> None:\n        self.marked.add(e.who)\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(lines(marks(3)))
    with _running(
        [sys.executable, "-m", "timelapse.cli.main", "live", str(rules) + ":Watch", str(tmp_path / "out"), f"Mark={tmp_path / 'in'}",
         "Hit=push", "--listen", "0", "--trigger", "20ms", "--ahead", "any", "--idle", "never"]
    ) as child:  # fmt: skip
        assert child.stderr is not None
        address = ""
        while not address:
            line = child.stderr.readline()
            assert line
            if line.startswith("http://"):
                address = line.split()[0]

        class Given:
            tokens = json.loads((tmp_path / "out" / "tokens.json").read_text())

        given: Any = Given()
        given.address = address
        client = Client(given)
        assert client.ask("/push/Hit", lines(hits(100)).encode(), right="push")[0] == 200
        # up to 1080, where the marks' file ends
        until(lambda: client.ask("/api/status")[1].get("rows", 0) >= 29, child)
        child.terminate()
        out, err = child.communicate(timeout=LONG)
    assert child.returncode == 0, err
    assert "stopped" in out
    from timelapse.streaming.reading import Reading

    opened = Reading.open(tmp_path / "out")
    assert opened.parity().same


def test_the_page_takes_nothing_as_markup(served: tuple[Live, Client]) -> None:
    """The page holds nothing of the run, its script puts texts in as text, and no other script may run."""
    _, client = served
    code, page = client.ask("/", right="")
    assert code == 200
    assert "Names" not in page
    script = client.ask("/page.js", right="")[1]
    assert "textContent" in script
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script
    connection = http.client.HTTPConnection(client.host, timeout=LONG)
    connection.request("GET", "/")
    policy = connection.getresponse().headers["content-security-policy"]
    connection.close()
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
