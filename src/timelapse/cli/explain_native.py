"""`timelapse explain --native`: what the native compiler makes of each pass."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timelapse.plan.plan import Plan
    from timelapse.program.program import Program


def print_native(program: Program, plan: Plan, *, as_json: bool) -> None:
    """The form of each pass and its source, or why it does not compile."""
    from timelapse.cli.console import line, print_json
    from timelapse.explanation.text import clean

    found = [
        _pass(program, work, name, final=final)
        for name, work, final in [
            *((f"pass {stage.index + 1}: {stage.name}", stage.work, False) for stage in plan.stages),
            ("final pass", plan.last, True),
        ]
    ]  # fmt: skip
    if as_json:
        print_json({"native": found})
        return
    for one in found:
        line((f"# {one['pass']}", "bold"))
        if "why" in one:
            line(f"# not compiled: {clean(one['why'])}")
        for event, why in one.get("left", {}).items():
            line(f"# {event} is left to Python: {clean(why)}")
        for event, lines in one.get("form", {}).items():
            line(f"\n# form: {event}")
            for text in lines or ["nothing is done"]:
                line(clean(text))
        if one.get("columns"):
            line("\n# columns")
            for column, text in one["columns"].items():
                line(f"{column}: {clean(text)}")
        if "source" in one:
            line("\n# source")
            for text in one["source"].splitlines():
                line(clean(text))
        line("")


def _pass(program: Program, work: Any, name: str, *, final: bool) -> dict[str, Any]:
    from timelapse.kernels.native.lowered import refused, shown_pass

    try:
        found = shown_pass(program, work, final=final)
    except refused() as refusal:
        return {"pass": name, "why": str(refusal)}
    return {"pass": name, **asdict(found)}
