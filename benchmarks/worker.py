"""One candidate in a process of its own: started as a script by `process.py`, told by JSON lines what to do.

It imports nothing of Timelapse, for some candidates run in an environment that has none. A reply is one JSON line:
`{"seconds": ..., "rows": ...}` or `{"error": ...}`; results go to a file, so that they can be compared.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Make candidates and run them as often as asked, until stdin ends. The first line says how many cores to use."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print where they like
    cores = json.loads(sys.stdin.readline())["cores"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    made: dict[str, Callable[[float], Any]] = {}
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = _obey(order, made, cores)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def _obey(order: dict[str, Any], made: dict[str, Callable[[float], Any]], cores: int) -> dict[str, Any]:
    name = order["name"]
    if "file" in order:
        made[name] = _load(Path(order["file"]))(Path(order["place"]), cores=cores, **order["options"])
        return {"ready": True}
    run = made[name]
    if "ready" in order:  # an order of its own: what it spends is not the run's
        getattr(run, "ready", lambda ratio: None)(order["ratio"])
        return {"ready": True}
    seconds, found = _timed(run, order["ratio"])
    import numpy as np

    found = np.asarray(found, np.int64)
    with open(order["out"], "wb") as out:
        out.write(found.tobytes())
    return {"seconds": seconds, "rows": len(found), "details": getattr(run, "details", None)}


def _timed(run: Callable[[float], Any], ratio: float) -> tuple[float, Any]:
    gc.collect()
    started = time.perf_counter()
    found = run(ratio)
    return time.perf_counter() - started, found


@functools.cache
def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module.candidate


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder: its modules are not meant to be imported by bare names
    main()
