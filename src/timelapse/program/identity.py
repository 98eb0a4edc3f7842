"""Which code a program is at this moment, for what this process keeps of programs: analyses, passes, lowered passes.

A class alone does not say it: helpers, globals, captured variables, class attributes and defaults may have been replaced since. So
what is kept is kept under the fingerprint's hash of all that the code reaches, and under the very functions and classes
that this went through: equal ones of a module that was loaded again are others.
"""

from __future__ import annotations

import builtins
import types
from dataclasses import dataclass, field
from typing import Any

from timelapse.program.fingerprint import Unsure, Writer, write_program
from timelapse.program.program import Program, params_of


@dataclass(frozen=True)
class Identity:
    """A program class as it is now. Equal ones have the same code, down to the objects that it consists of.

    `certain`: nothing that the code reaches is only known by name, as libraries and their objects are.
    """

    digest: str
    places: tuple[int, ...]
    certain: bool
    objects: tuple[Any, ...] = field(compare=False, repr=False)
    """What has these identities: nothing else has them as long as it is held."""


def identity_of(cls: type[Program]) -> Identity:
    """What a program class is now. Parameters' values play no part."""
    for strict in (True, False):
        writer = Writer(strict=strict, mro=cls.__mro__)
        try:
            write_program(writer, cls)
            digest = writer.digest()
        except (Unsure, RecursionError):
            if strict:
                continue
            raise
        objects = [cls, *writer.met]
        objects += [o.__code__ for o in writer.met if isinstance(o, types.FunctionType)]
        objects += [getattr(builtins, name) for name in writer.names if hasattr(builtins, name)]
        return Identity(digest, tuple(map(id, objects)), strict, tuple(objects))
    raise AssertionError


def params_identity(program: Program) -> str | None:
    """A hash of the parameters' values and their types; None where some value is only known by name."""
    writer = Writer(strict=True, mro=type(program).__mro__)
    try:
        for name, value in params_of(program).items():
            writer.value(f"param:{name}", value)
        return writer.digest()
    except (Unsure, RecursionError):
        return None
