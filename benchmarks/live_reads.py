"""Reads of single keys beside a live run: from a process of its own over HTTP, and from a thread of the run's process.

Where it is asked for, over HTTP from `timelapse serve` too, in a process that follows the run (`apart`), and how old what it answers is: the time since the
commit of the first epoch that it does not have yet (`age`).

Beside them the same client asks a server in a third process that answers at once (`floor`): what of their time is the machine's, where others use it too.

Clients ask for short turns of a core (env/scheduler.py): on other machines they would need none of these.

As a program: reads a key of a state over one connection, says so, waits for a line of input, then reads so many a second until its input ends, and prints the seconds that each took from when it was due and from when
it was begun, and when it was answered from which epoch.
With `--serve` it is that server.
"""

from __future__ import annotations

import asyncio
import bisect
import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np


def paced(rate: float, read: Callable[[], None], stop: threading.Event) -> list[tuple[float, float]]:
    """So many reads a second, each at a random moment of its share of the time: else all ways would ask at the same moments, and always as long after rows were
    sent. One that takes longer delays the next, and those behind are made up for.

    The seconds from when each was due: a reader that waits does not hide how long. Beside them those from when it was begun: the rest is what the
    reader's own process waited for a core.
    """
    found: list[tuple[float, float]] = []
    begin, chance = time.perf_counter(), random.Random(threading.get_native_id())
    while not stop.is_set():
        due = begin + (len(found) + chance.random()) / rate
        left = due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        sent = time.perf_counter()
        read()
        end = time.perf_counter()
        found.append((end - due, end - sent))
    return found


class Readers:
    """Reads of one state's keys, `rate` a second on each way, while this is entered."""

    def __init__(self, run: Any, keys: int, rate: float, *, apart: bool = False) -> None:
        from timelapse.program.program import spec_of

        self._run, self._rate, self._apart = run, rate, apart
        self._commits: list[tuple[float, int]] = []
        run.follow(lambda epoch, _: self._commits.append((time.time(), epoch.number)))
        declared = spec_of(run.program).declared
        self.state = next(
            n for n, s in declared.items() if s.key is not None and s.key.text == "int" and s.outer is None
        )
        self._keys, self._stop = keys, threading.Event()
        self._apart_at = self._serve_apart() if apart else ""

    def __enter__(self) -> Self:
        from timelapse.streaming.serve.app import Server

        self._server = Server(self._run, "127.0.0.1:0")
        self._trivial = _child("--serve")
        addresses = {"http": self._server.address, "floor": self._trivial.stdout.readline().strip()}
        rest = [self._server.tokens["read"], self.state, str(self._keys), str(self._rate)]
        if self._apart:
            addresses["apart"] = self._apart_at
        self._children = {way: _child(address, *rest) for way, address in addresses.items()}
        for child in self._children.values():
            child.stdout.readline()  # it is there
        # All at once: processes that start beside them are no load of a run.
        for child in self._children.values():
            child.stdin.write("\n")
            child.stdin.flush()
        chance = random.Random(3)
        self._inside: list[tuple[float, float]] = []

        def read() -> None:
            self._run.get(self.state, chance.randrange(self._keys))

        self._thread = threading.Thread(
            target=lambda: self._inside.extend(paced(self._rate, read, self._stop))
        )
        self._thread.start()
        return self

    def _serve_apart(self) -> str:
        """Start `timelapse serve`, and wait until it follows. Returns its address."""
        command = [sys.executable, "-m", "timelapse.cli.main", "serve", str(self._run.path), "--listen", "0"]
        self._serving = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self._serving.stderr is not None
        lines = iter(self._serving.stderr)
        address = next(line.split()[0] for line in lines if line.startswith("http://"))
        next(line for line in lines if line.startswith("following"))
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        return address

    def _ages(self, answered: list[tuple[float, int]]) -> list[float]:
        """How old each answer was, in seconds."""
        numbers = [number for _, number in self._commits]
        found = []
        for at, epoch in answered:
            behind = bisect.bisect_right(numbers, epoch)
            found.append(max(0.0, at - self._commits[behind][0]) if behind < len(numbers) else 0.0)
        return found

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        outs = {way: json.loads(child.communicate()[0]) for way, child in self._children.items()}
        self._trivial.communicate()
        self._server.close()
        if self._apart:
            self._serving.terminate()
            self._serving.wait()
        seconds = {"get": self._inside, **{way: out["seconds"] for way, out in outs.items()}}
        self.found: dict[str, dict[str, float]] = {}
        for way, own in seconds.items():
            due, begun = zip(*own, strict=True)
            self.found[way] = {**_percentiles(due), "begun_p99_ms": _percentiles(begun)["p99_ms"]}
        if self._apart:
            self.found["age"] = _percentiles(self._ages(outs["apart"]["answered"]))


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    found = {f"p{q}_ms": round(1000 * float(np.percentile(seconds, q)), 2) for q in (50, 99)}
    return {**found, "reads": len(seconds)}


def _child(*given: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.live_reads", *given]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve() -> None:
    """Answer everything at once, until the input ends."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Any) -> JSONResponse:
        return JSONResponse({"value": 1, "epoch": 1})

    app = Starlette(routes=[Route("/api/state/{name}", answer)])
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", access_log=False, lifespan="off"
    )
    server, bound = uvicorn.Server(config), socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=wait, daemon=True).start()
    asyncio.run(server.serve([bound]))


def main() -> None:
    from timelapse.env.scheduler import come_soon

    come_soon()
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    address, token, state, keys, rate = sys.argv[1:]
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    chance, stop = random.Random(4), threading.Event()
    answered: list[tuple[float, int]] = []

    def read() -> None:
        path = f"/api/state/{state}?key={chance.randrange(int(keys))}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        answered.append((time.time(), json.loads(body)["epoch"] or 0))

    while True:
        try:
            read()
            break
        except ConnectionRefusedError:
            connection.close()
            time.sleep(0.05)
    print("reading", flush=True)
    sys.stdin.readline()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    print(json.dumps({"seconds": paced(float(rate), read, stop), "answered": answered}))


if __name__ == "__main__":
    main()
