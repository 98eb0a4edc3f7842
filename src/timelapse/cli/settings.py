"""`--set name=value`: parameters from the command line, read by their declared types."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from timelapse.errors import TimelapseError, UsageError, meant
from timelapse.model.decimals import of_text
from timelapse.program.program import ParamSpec, Program, spec_of

_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def build_program(cls: type[Program], settings: Iterable[str], option: str = "--set") -> Program:
    """The program with its parameters set, by this option. Raises UsageError (TL806) for what does not fit."""
    spec = spec_of(cls)
    known = ", ".join(f"{p.name}: {p.text}" for p in spec.params.values()) or "none"
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(
                f"{option} {setting!r} has no value", hint=f"write {option} ratio=3.0", code="TL806"
            )
        if name not in spec.params:
            raise UsageError(
                f"{spec.name} has no parameter {name!r}",
                hint=f"{meant(name, spec.params)}parameters: {known}",
                code="TL806",
            )
        if name in values:
            raise UsageError(f"{option} {name} is given twice", hint="give it once", code="TL806")
        values[name] = read_value(spec.params[name], text)
    return cls(**values)


def read_value(param: ParamSpec, text: str) -> Any:
    """A parameter's value from its text. Raises UsageError (TL806), naming the type."""
    try:
        return param.check(_read(param.text, text))
    except (ValueError, SyntaxError, TypeError, MemoryError, TimelapseError) as error:
        reason = error.message if isinstance(error, TimelapseError) else f"{text!r} is not {param.text}"
        raise UsageError(
            f"{param.name}: {reason}", hint=f"{param.name} is {param.text}, by default {param.default!r}",
            code="TL806",
        ) from None  # fmt: skip


def _read(kind: str, text: str) -> Any:
    if kind.endswith(" | None"):
        return None if text.strip() == "None" else _read(kind.removesuffix(" | None"), text)
    if kind == "str":
        return text
    if kind in ("int", "Time"):
        return int(text)
    if kind == "float":
        return float(text)
    if kind.startswith("Decimal"):
        return of_text(text)
    if kind == "bool":
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise ValueError(text)
        return word in _TRUE
    if kind == "resource":
        from timelapse.model.resource import Resource

        raise UsageError(f"a {Resource.__name__.lower()} is part of the program's text", code="TL806")
    return ast.literal_eval(text)
