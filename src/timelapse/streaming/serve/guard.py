"""Who may do what: tokens for reading, pushing and operating; only from where the server is meant to be called.

A browser that is led to another site may send requests here: so Host and Origin are checked on localhost, too.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from timelapse.errors import UsageError
from timelapse.streaming.serve.listening import LOCAL, is_local

RIGHTS = ("read", "push", "operate")
FILE = "tokens.json"


class Refused(Exception):
    """A request that is not answered: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why

    def response(self) -> Response:
        """For the client."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.status in (408, 413):  # the rest of its body is not read
            headers["Connection"] = "close"
        return JSONResponse({"error": self.why}, self.status, headers)


def tokens_at(out: Path) -> dict[str, str]:
    """The tokens of a live run, by right; made when they are first asked for, readable by their owner only."""
    path = out / FILE
    while True:
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            found = _read(path)
            if isinstance(found, dict) and all(isinstance(found.get(right), str) for right in RIGHTS):
                return {right: found[right] for right in RIGHTS}
            raise UsageError(
                f"{path} has no tokens", hint="remove it: new ones are made", code="TL810"
            ) from None
        made = {right: secrets.token_urlsafe(24) for right in RIGHTS}
        with os.fdopen(handle, "w") as file:
            json.dump(made, file, indent=2)


def _read(path: Path) -> Any:
    """What is in a file that another process may be writing; None where it is no JSON."""
    for _ in range(100):
        if text := path.read_text():
            break
        time.sleep(0.01)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


class Guard:
    """Checks requests. `host` is what the server listens on."""

    def __init__(self, tokens: Mapping[str, str], host: str) -> None:
        self._tokens, self._host = dict(tokens), host

    def check(self, request: HTTPConnection, right: str | None) -> None:
        """Raises Refused. `right`: what the request needs a token for; None: nothing."""
        named = urlsplit("//" + request.headers.get("host", "")).hostname or ""
        allowed = {*LOCAL, self._host}
        if is_local(self._host) and named not in allowed:
            raise Refused(421, "this server answers to localhost only")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
            raise Refused(403, "requests of other sites are not answered")
        if right is None:
            return
        given = request.headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.encode(), self._tokens[right].encode()
        ):
            raise Refused(
                401,
                f"a token for {right} is needed: Authorization: Bearer ..., from {FILE}: where that is was said at the beginning",
            )
