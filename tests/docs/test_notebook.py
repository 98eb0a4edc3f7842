"""The example notebook runs from top to bottom and prints what it says.

`UPDATE_GOLDEN=1` stores what it printed and drew.
"""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.patience import LONG

NOTEBOOK = Path(__file__).parents[2] / "docs" / "antispam.ipynb"


def _printed(cell: Any) -> str:
    return "".join(
        o["text"] for o in cell.get("outputs", []) if o["output_type"] == "stream" and o["name"] == "stdout"
    )


def _kinds(cell: Any) -> list[str]:
    return [
        kind for o in cell.get("outputs", []) if o["output_type"] == "execute_result" for kind in o["data"]
    ]


def test_the_notebook_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own: the same prints, and a picture or card where there was one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # third parties'
        from nbclient import NotebookClient

        nbformat: Any = importlib.import_module("nbformat")  # it has hardly any types

        stored = nbformat.read(NOTEBOOK, as_version=4)
        fresh = nbformat.read(NOTEBOOK, as_version=4)
        monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "cache"))
        NotebookClient(
            fresh, timeout=LONG, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    assert (tmp_path / "antispam-example" / "report.html").stat().st_size > 20_000
    if os.environ.get("UPDATE_GOLDEN"):
        for cell in fresh.cells:
            cell.metadata.pop("execution", None)
            for output in cell.get("outputs", []):
                output.get("data", {}).pop("text/plain", None) if "text/html" in output.get(
                    "data", {}
                ) else None
        text = nbformat.writes(fresh).replace(str(tmp_path), "/home/you")
        NOTEBOOK.write_text(text + "\n", encoding="utf-8")
        return
    for old, new in zip(stored.cells, fresh.cells, strict=True):
        if old.cell_type == "code":
            assert _printed(new) == _printed(old)
            assert [k for k in _kinds(new) if k != "text/plain"] == [
                k for k in _kinds(old) if k != "text/plain"
            ]
            assert not [o for o in new.outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert sum(bool(_printed(c)) for c in stored.cells if c.cell_type == "code") >= 4
    assert (
        str(Path.home()) not in NOTEBOOK.read_text(encoding="utf-8").replace("/home/you", "")
        or str(Path.home()) == "/"
    )
