"""How a process of the project's own ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process as Python does, but for the destructors of libraries: Arrow's ends its threads, and aborts (exit 134, "terminate
    called without an active exception") where one of them is just ending by itself, as after a filter on a busy machine.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # whoever read us has gone, or it is closed
                stream.flush()
        os._exit(code)
