"""Progress in notebooks: one line per stage with a bar, written over as the work goes on."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from html import escape
from typing import Any

from timelapse.display import clean, took
from timelapse.progress import Progress, Silent

_EVERY_SECONDS = 0.2
_FIRST_SECONDS = 0.5
"""Work that is done sooner leaves no trace."""


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return getattr(found, "kernel", None) is not None


def default_progress() -> Progress:
    """What a call shows when nobody says: bars in a notebook, nothing elsewhere (the command line brings its own)."""
    return NotebookProgress() if in_notebook() else Silent()


class NotebookProgress:
    """A listener that draws one display of the notebook again and again. The display needs no widgets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, tuple[int, int, float | None]] = {}
        self._notes: list[str] = []
        self._began = time.monotonic()
        self._drawn = 0.0
        self._display: Any = None

    def stage(self, name: str, total: int) -> None:
        """Adds a line."""
        with self._lock:
            self._stages.pop(name, None)
            self._stages[name] = (0, total, None)
            self._draw()

    def advance(self, name: str, done: int, total: int) -> None:
        """Moves the bar."""
        with self._lock:
            self._stages[name] = (done, total, None)
            self._draw()

    def finish(self, name: str, seconds: float) -> None:
        """Says how long the stage took."""
        with self._lock:
            done, total, _ = self._stages.get(name, (0, 0, None))
            self._stages[name] = (total or done, total, seconds)
            self._draw(last=all(s[2] is not None for s in self._stages.values()))

    def note(self, text: str) -> None:
        """A line above the bars."""
        with self._lock:
            self._notes.append(text)
            self._draw()

    def html(self) -> str:
        """What is shown now."""
        lines = [f'<div style="opacity:.7">{escape(clean(note))}</div>' for note in self._notes[-3:]]
        for name, (done, total, seconds) in self._stages.items():
            share = 100.0 if seconds is not None else 100 * min(done, total) / total if total else 0.0
            told = took(seconds) if seconds is not None else f"{done:,}" if done else ""
            lines.append(
                '<div style="display:flex;gap:12px;align-items:center;font-size:13px;line-height:1.5">'
                f'<span style="width:230px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap">{escape(clean(name))}</span>'
                '<span style="width:200px;height:6px;border-radius:3px;background:#8883"><span style="display:block;height:6px;'
                f'border-radius:3px;background:#2f6fdf;width:{share:.0f}%"></span></span><span style="opacity:.7">{told}</span></div>'
            )
        return f'<div class="timelapse">{"".join(lines)}</div>'

    def _draw(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if self._display is None and now - self._began < _FIRST_SECONDS:
            return
        if now - self._drawn < _EVERY_SECONDS and not last:
            return
        self._drawn = now
        shell: Any = importlib.import_module("IPython.display")
        if self._display is None:
            self._display = shell.display(shell.HTML(self.html()), display_id=True)
        else:
            self._display.update(shell.HTML(self.html()))


_: type[Progress] = NotebookProgress
