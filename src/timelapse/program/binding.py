"""The `self` that handlers see: a program with live states and what a run supplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timelapse.kinds.base import State, StateSpec
from timelapse.program.program import Program, params_of, spec_of


def bind(
    program: Program,
    states: Mapping[str, Any],
    runtime: Mapping[str, Any],
    members: Mapping[str, Any] | None = None,
) -> Any:
    """The `self` that handlers see: the program with live states, `now`, `emit` and `reject`.

    `states` maps names to state objects; `runtime` maps the names in RUNTIME_NAMES; `members`
    replaces methods of the class.
    The result's `__dict__["now"]` is the time of the step and is set by whoever runs it.
    """
    spec = spec_of(program)
    cls = type(program)
    namespace: dict[str, Any] = {"__setattr__": _guard, "__delattr__": _guard_delete, **(members or {})}
    plain = {}
    for name, live in states.items():
        # A delta object (kinds/effects.py) is only written through methods: never an attribute.
        if not _is_attribute(spec.states[name]) or not hasattr(live, "_read"):
            plain[name] = live
        else:
            namespace[name] = property(_reader(live), _writer(live), _deleter(live))
    meta: Any = type(cls)
    bound_class: Any = meta(cls.__name__, (cls,), namespace)
    bound = object.__new__(bound_class)
    bound.__dict__.update(params_of(program))
    bound.__dict__["__params__"] = params_of(program)
    bound.__dict__.update(plain)
    bound.__dict__.update(runtime)
    for live in states.values():
        if isinstance(live, State) and live.uses_now:
            live._now = lambda: bound.__dict__["now"]
    return bound


def _is_attribute(spec: StateSpec) -> bool:
    return spec.key is None and spec.kind.attribute_style


def _reader(live: Any) -> Callable[[Any], Any]:
    return lambda _self: live._read()


def _writer(live: Any) -> Callable[[Any, Any], None]:
    return lambda _self, value: live._write(value)


def _deleter(live: Any) -> Callable[[Any], None]:
    return lambda _self: live._delete()


def _guard(self: Any, name: str, value: Any) -> None:
    member = getattr(type(self), name, None)
    if isinstance(member, property) and member.fset is not None:
        member.fset(self, value)
        return
    raise AttributeError(f"self.{name} is not declared as a state: handlers keep nothing on self")


def _guard_delete(self: Any, name: str) -> None:
    member = getattr(type(self), name, None)
    if isinstance(member, property) and member.fdel is not None:
        member.fdel(self)
        return
    if name in self.__dict__ and hasattr(self.__dict__[name], "_delete"):
        self.__dict__[name]._delete()
        return
    raise AttributeError(f"self.{name} cannot be deleted")
