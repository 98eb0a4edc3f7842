"""Programs change between epochs: what of the old one's states the new one goes on with.

States of the same name and declaration are kept with what windows see of them; others begin empty, are left behind, renamed or converted,
as a migration says. What would silently lose or make up something is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from timelapse.kinds.base import StateSpec
from timelapse.model.events import Event
from timelapse.program.pending import PENDING, WRITES
from timelapse.program.program import Program, spec_of
from timelapse.program.times import VIEWS, kept
from timelapse.streaming.declared import unsafe
from timelapse.streaming.kernel import is_restorable
from timelapse.streaming.stand import Seen, Stand
from timelapse.tables.table import state_table, to_dict

Convert = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
"""Of a key and what is stored under it: the keys and values in its place. In a Set values are True; keys of SetOf and MapOf are (key, member)."""


@dataclass(frozen=True)
class Migration:
    """What becomes of states whose declarations differ between two versions of a program.

    `rename`: new names by old ones. `drop`: states that are left behind with what they hold. `convert`: by new name, a function
    of a key and its value that gives the pairs of the new state; it must depend on these alone. `before`: the version before, where
    its files are not kept with the run.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    convert: Mapping[str, Convert] = field(default_factory=dict)
    before: Program | None = None


def migrated(old: Program, new: Program, stand: Stand, migration: Migration) -> tuple[Stand, list[str]]:
    """Where the new program begins, and what was done, for people. Raises RunError (TL847) for what is unsafe."""
    before, after = spec_of(old), spec_of(new)
    for program in (old, new):
        if not is_restorable(program):
            raise unsafe(
                program,
                "it runs as the serial loop, which begins with the journal's first row",
                "begin another live run",
            )
    _check_names(old, new, migration)
    origin = {
        migration.rename.get(name, name): name for name in before.declared if name not in migration.drop
    }
    done: list[str] = []
    states: dict[str, pa.Table] = {}
    moved: dict[str, str] = {}
    for name, spec in after.declared.items():
        source = origin.get(name)
        if source is None:
            done.append(f"state {name} begins empty")
            continue
        had = before.declared[source]
        table = stand.states.get(source)
        if name in migration.convert:
            states[name] = _converted(new, spec, had, table, migration.convert[name])
            done.append(f"state {name}: {_rows(table):,} keys converted to {states[name].num_rows:,}")
            continue
        if had.text != spec.text:
            raise unsafe(
                new, f"state {name} was {had.text} and is {spec.text}",
                f"convert it (--convert {name}=FILE:FUNCTION), or leave it behind and begin empty (--drop-state {source})",
            )  # fmt: skip
        if table is not None:
            states[name] = table
        moved[source] = name
        if source != name:
            done.append(f"state {source} is {name} now")
    for name in before.declared:
        if name in migration.drop:
            done.append(f"state {name} is left behind with {_rows(stand.states.get(name)):,} keys")
        elif name not in moved and migration.rename.get(name, name) not in migration.convert:
            if _rows(stand.states.get(name)):
                raise unsafe(
                    new, f"state {name} is gone, and holds {_rows(stand.states.get(name)):,} keys",
                    f"say so (--drop-state {name}), or what it is called now (--rename {name}=NEW)",
                )  # fmt: skip
    _check_views(old, new, moved, states)
    _check_ahead(old, new, stand)
    states |= {name: stand.states[name] for name in (PENDING, WRITES) if name in stand.states}
    seen = tuple(
        Seen(part.end, _renamed_rows(part.rows, moved), _renamed(part.effects, moved)) for part in stand.seen
    )
    seen = tuple(part for part in seen if part.rows)
    return Stand(states, seen, _renamed(stand.stood, moved), stand.complete), done


def _check_names(old: Program, new: Program, migration: Migration) -> None:
    before, after = spec_of(old).declared, spec_of(new).declared
    for name in [*migration.rename, *migration.drop]:
        if name not in before:
            raise unsafe(new, f"the version before has no state {name}", f"it has: {', '.join(before)}")
    for name in [*migration.rename.values(), *migration.convert]:
        if name not in after:
            raise unsafe(new, f"it has no state {name}", f"it has: {', '.join(after)}")
    names = [migration.rename.get(name, name) for name in before if name not in migration.drop]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise unsafe(new, f"two states become {min(twice)}", "leave one behind: --drop-state")


def _check_views(
    old: Program, new: Program, moved: Mapping[str, str], states: Mapping[str, pa.Table]
) -> None:
    """What the new program looks back on must have been kept: as far, and in the same way."""
    widths, needed = kept(old), kept(new)
    had = {(moved.get(u.state, ""), u.what) for u in spec_of(old).times if u.what in VIEWS}
    backwards = {now: source for source, now in moved.items()}
    for name, width in needed.items():
        source = backwards.get(name)
        if source is None:
            if name in states:
                raise unsafe(
                    new,
                    f"it looks back on {name}, whose past cannot be converted",
                    "use a shadow: it has all of the past",
                )
            continue
        if width > widths.get(source, 0):
            raise unsafe(
                new, f"it looks back on {name} for longer than the version before, which kept {widths.get(source, 0) / 1e6:,.0f} s of it",
                "use a shadow, which has all of the past, and promote it; or give the state a new name, and it begins empty",
            )  # fmt: skip
    for use in spec_of(new).times:
        if use.what in VIEWS and use.state in backwards and (use.state, use.what) not in had:
            raise unsafe(
                new, f"it asks {use.state} for `{use.what}`, and the version before kept nothing for that",
                "use a shadow, which has all of the past, and promote it; or give the state a new name, and it begins empty",
            )  # fmt: skip


def _check_ahead(old: Program, new: Program, stand: Stand) -> None:
    """What is dated, and still to come, must mean the same."""
    before, after = spec_of(old), spec_of(new)
    if _rows(stand.states.get(PENDING)):
        sent, known = ({_shape(e) for e in types} for types in (before.sent, after.events))
        if PENDING not in after.states or not sent <= known:
            raise unsafe(
                new, "timers or dated events of the version before are still to come, and it does not listen to all of these",
                "keep their types, with the same fields, and a handler for each",
            )  # fmt: skip
    if _rows(stand.states.get(WRITES)):
        declared = (
            [(n, s.text) for n, s in before.declared.items()],
            [(n, s.text) for n, s in after.declared.items()],
        )
        if WRITES not in after.states or not set(declared[0]) <= set(declared[1]):
            raise unsafe(
                new, "dated writes of the version before are still to come, and its states are other ones",
                "keep the states and their names",
            )  # fmt: skip


def _converted(
    new: Program, spec: StateSpec, had: StateSpec, table: pa.Table | None, convert: Convert
) -> pa.Table:
    """A state whose contents are made of another's."""
    key_check = None if spec.key is None else spec.key.checker(f"a key of {spec.name}")
    value_check = None if spec.value is None else spec.value.checker(f"a value of {spec.name}")
    found: dict[Any, Any] = {}
    for key, value in to_dict(had, table).items():
        for k, v in convert(key, value):
            k = k if key_check is None else key_check(k)
            if k in found:
                raise unsafe(
                    new,
                    f"the conversion of {spec.name} gives the key {k!r} twice",
                    "put the values together in the program",
                )
            found[k] = True if value_check is None else value_check(v)
    return state_table(spec, found.items())


def _renamed(tables: Mapping[str, pa.Table], moved: Mapping[str, str]) -> dict[str, pa.Table]:
    return {
        moved.get(name, name): table
        for name, table in tables.items()
        if name in moved or name.startswith("~")
    }


def _renamed_rows(
    rows: Mapping[tuple[str, str], pa.Table], moved: Mapping[str, str]
) -> dict[tuple[str, str], pa.Table]:
    return {(moved[state], form): table for (state, form), table in rows.items() if state in moved}


def _shape(event: type[Event]) -> tuple[str, str]:
    return event.__name__, repr([(f.name, f.type.text) for f in event.__fields__])


def _rows(table: pa.Table | None) -> int:
    return 0 if table is None else table.num_rows
