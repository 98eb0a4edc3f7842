"""A server of S3 for tests: moto in server mode, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3

from tests.patience import LONG

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing-id",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """`url`: its address. It can be stopped and begun again at the same address; then it is empty."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("s3_main.py"), "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            assert self._process.poll() is None, "the server has ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id="testing-id", aws_secret_access_key="testing-secret",
        )  # fmt: skip

    def bucket(self) -> str:
        """A new bucket's name."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The names of all objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server for as long as the block; the environment names it."""
    server = S3Server()
    server.start()
    before = dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield server
    finally:
        server.stop()
        os.environ.clear()
        os.environ.update(before)


class Gate:
    """A way to a server that can be shut: connections are refused then, and those that are open break off."""

    def __init__(self, port: int) -> None:
        self._target = port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self._listening: socket.socket | None = None
        self._open: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen(64)
        self._listening = listening
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def shut(self) -> None:
        """Refuse, and break off what is going on."""
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open = []

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                here, _ = listening.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._target))
            self._open += [here, there]
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=_forward, args=(one, other), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    source.close()  # each is one thread's source
