"""JSON into classes, in several threads at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import timelapse
from timelapse.decoding import decoded

CODE = """
import sys
import threading

import msgspec

from timelapse.decoding import decoded

sys.setswitchinterval(1e-6)
text = b'{"about": {"f1": [["a", 1]]}, "more": {"x": {"f19": []}}}'
for n in range(300):
    fields = [(f"f{i}", list[tuple[str, int]], []) for i in range(20)]
    inner = msgspec.defstruct(f"Inner{n}", fields)
    outer = msgspec.defstruct(f"Outer{n}", [("about", inner), ("more", dict[str, inner])])
    begun, found = threading.Barrier(3), []

    def work():
        begun.wait()
        found.append(decoded(text, outer).about.f1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[("a", 1)]] * 3
"""


def test_classes_that_threads_decode_first_at_the_same_time() -> None:
    """The process died of a segmentation fault: a live run where its loop and a sink read the first epoch, who follows one where it was asked meanwhile."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_other_code_decodes_classes() -> None:
    """Those that `decoded` does not know of would be looked at by several threads."""
    root = Path(timelapse.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "msgspec" not in text or path.name == "decoding.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name = ast.unparse(node.func)
            typed = any(keyword.arg == "type" for keyword in node.keywords)
            if name == "msgspec.convert" or (
                name.startswith("msgspec.") and name.endswith(".decode") and typed
            ):
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    # lists of amounts are no class: there is nothing to find out
    assert [place for place in found if not place.startswith("ingest/convert.py")] == []


def test_texts_that_are_not_utf8_are_an_error_of_msgspec() -> None:
    """Who reads a damaged manifest, or what somebody sent, expects no other one."""
    for kind in (dict[str, str], Any):
        with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
            decoded(b'{"a": "\xff"}', kind)
