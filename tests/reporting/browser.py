"""A real browser for tests: Chromium without a window, spoken to over a pipe (the DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.patience import LONG

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def found() -> str | None:
    """The browser's path; None where there is none."""
    return os.environ.get("TIMELAPSE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless Chromium. `requests` and `messages` collect what it asked for and complained about."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()

        # The protocol is spoken over descriptors 3 (to the browser) and 4 (from it).
        script = f'exec "$0" "$@" 3<&{out_read} 4>&{in_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(out_read, in_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(out_read)
        os.close(in_write)
        self._to, self._from = out_write, in_read
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.messages: list[str] = []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        self._number += 1
        sent: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            sent["sessionId"] = self._session
        data = json.dumps(sent).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return dict(message["result"])
            self._take(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], LONG)[0], "the browser says nothing"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser ended"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(params["exceptionDetails"]))
        self._events.append(message)

    def open(
        self,
        path: Path | str,
        *,
        width: int = 1200,
        height: int = 900,
        phone: bool = False,
        dark: bool = False,
    ) -> None:
        """Load a file, or an address, at a size, on a desktop or a phone, light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip
        self.call(
            "Emulation.setEmulatedMedia", media="",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )  # fmt: skip
        self.requests.clear()
        self.messages.clear()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            if self.evaluate("document.readyState === 'complete' && location.href !== 'about:blank'"):
                return
            time.sleep(0.02)
        raise AssertionError("the page did not load")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mouseMoved, mousePressed, mouseReleased."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """The page as PNG."""
        found = self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole,
            **(self._all() if whole else {}),
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def _all(self) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        )
