"""From a pass's handlers to the source of one flat function.

Handlers and the helpers that they call are written one after the other into the body of a loop over
events. What is not on the list below raises Refused, and the pass is interpreted. What can go wrong
while it runs (an integer outside int64, a zero divisor, `raise`) leaves the function with 1.

A slice's events come as columns per type and as one array that tells each event's type.
"""

from __future__ import annotations

import re
from typing import Any

from timelapse.analysis.result import PassHandler, PassProgram
from timelapse.kernels.native.lowering.emitter import LEAVE_ALL, REJECT, SPEND
from timelapse.kernels.native.lowering.flow import Level, rendered
from timelapse.kernels.native.lowering.grouping import together
from timelapse.kernels.native.lowering.lookahead import look_ahead
from timelapse.kernels.native.lowering.records import record_columns
from timelapse.kernels.native.lowering.rejecting import Rejecting
from timelapse.kernels.native.lowering.rows import share_rows
from timelapse.kernels.native.lowering.states.base import UNDO, word
from timelapse.kernels.native.lowering.states.counter import CounterCode
from timelapse.kernels.native.lowering.values import EventRef, ReadsAll, Refused, SelfRef
from timelapse.kernels.native.lowering.wide import WIDTHS, wide
from timelapse.kernels.native.unit import LISTED, TAKES, Instant, Later, Ticking, Unit
from timelapse.kernels.native.windows import KEPT, USED, members_spec
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.model.program import Program, spec_of
from timelapse.model.times import span_of

_PLAIN = re.compile(r"[\w\[\]]+$")
_NOTED = re.compile(r"^\s*(?:push|stamp|enqueue|empty)\(w(\d+),")
_KEEPS = " keep(kept, "
_NUMBER = re.compile(r"\bN(\d+)\b")
_NEGATIVE = re.compile(r"\bM(\d+)\b")
_LITERAL = re.compile(r"(?<![\w\])])\((-?)(\d+)\)|(?<=[(\s])(-?)(\d+)(?=[,)])|(?<=[(\s])(True|False)(?=[,)])")
"""An integer in parentheses, and one or a bool that is an argument or the last operand in parentheses."""

_COLUMN = re.compile(r"\bcol(\d+)\b")


def _numbered(found: re.Match[str]) -> str:
    """The name for a literal."""
    if found[5]:
        return found[5].upper()
    return ("M" if found[1] or found[3] else "N") + (found[2] or found[4])


def without_idle_saves(body: list[str], *, more: bool = False) -> list[str]:
    """An event's code without the undo entries that nothing can need: no exit comes after them.

    Code after an exit inside of the same loop may have run before it. `more`: exits may come after all of it.
    """
    if more:
        return body
    exits = [n for n, line in enumerate(body) if _is_exit(line)]
    last = max(exits, default=-1)
    if last >= 0:
        loops = [n for n, line in enumerate(body[:last]) if line.lstrip().startswith(("for ", "while "))]
        for start in loops:
            depth = len(body[start]) - len(body[start].lstrip())
            end = next(
                (n for n in range(start + 1, len(body)) if len(body[n]) - len(body[n].lstrip()) <= depth),
                len(body),
            )
            last = max(last, end) if end > last else last
    return [line for n, line in enumerate(body) if n < last or not line.endswith(UNDO)]


def _is_exit(line: str) -> bool:
    found = line.lstrip()
    return (found.startswith("return ") and found not in (SPEND, LEAVE_ALL)) or line.endswith(REJECT)


def lowered(program: Program, work: PassProgram, *, final: bool) -> Unit:
    """A pass as source, with a table for states that are used under the same keys. Raises Refused.

    Handlers of ticks run as Python, all of them, where one of them cannot be compiled, and there are others.
    """
    try:
        return _lowered(program, work, final=final)
    except Refused:
        ticking = {h.name for h in spec_of(program).handlers if h.every is not None}
        if len({h.name in ticking for h in work.handlers}) < 2:
            raise
    return _lowered(program, work, final=final, ticks_apart=True)


def _lowered(program: Program, work: PassProgram, *, final: bool, ticks_apart: bool = False) -> Unit:
    """It is written once to see which states share a table, which counters are steady and of which SetOfs the members are
    counted or listed, and then knowing that."""
    alone = Lowering(program, work, final=final)
    alone.ticks_apart = ticks_apart
    alone.write()
    tables = [states for states in alone.together() if len(states) > 1]
    steady = alone.steady_counters()
    counted, indexed = list(alone.unit.counted), list(alone.unit.indexed)
    if not tables and not steady and not counted and not indexed:
        return alone.finish()
    again = Lowering(
        program, work, final=final, tables=tables, steady=steady, counted=counted, indexed=indexed
    )
    again.ticks_apart = ticks_apart
    return again.run()


class Lowering(Rejecting):
    """Writes one pass. Raises Refused."""

    _following_bodies: list[list[str]]
    """The code of each type of event that is sent."""
    ticks_apart = False
    """Whether handlers of ticks run as Python."""

    def together(self) -> list[tuple[str, ...]]:
        """The states of each table, once it is written."""
        used = [{name: frozenset(keys) for name, keys in event.items()} for event in self._keys.values()]
        unit = self.unit
        stamped = {n for n, views in unit.windows.items() if views.stamped or views.queued}
        alone = {*stamped, *unit.hidden, *unit.indexed}
        states = [n for n in unit.states if n not in alone]
        return together(states, spec_of(self._program).states, unit.layouts, used)

    def steady_counters(self) -> dict[str, int]:
        """The exact counters of which nothing but small constants is told, once it is written; and how much an event adds."""
        if self.unit.left or self.unit.shared or self.unit.ticks:
            return {}
        return {
            name: code.steps.most
            for name, code in self._states.items()
            if isinstance(code, CounterCode) and code.mode == "exact" and code.steps.steady
            and name not in self.unit.hidden
        }  # fmt: skip

    def run(self) -> Unit:
        """Write everything."""
        self.write()
        return self.finish()

    def write(self) -> None:
        """Write the handlers of each event. What is used how is known then."""
        unit, work = self.unit, self._work
        own = self._events()
        unit.handlers = [h.name for h in work.handlers]
        unit.shared = self._final and work.by_key is not None and not unit.steps
        bodies: list[list[str]] = []
        heads: list[list[str]] = []
        first: Refused | None = None
        for index, event in enumerate(unit.events):
            self._event, self._lines, self._levels = index, [], [Level(1)]
            heads.append(self._ownership(event.__name__) if unit.shared else [])
            self._lines = []
            mark = self._mark()
            is_tick = index in unit.ticking
            for handler in own[index]:
                if event in handler.events or is_tick:
                    self._handler = unit.handlers.index(handler.name)
                    given: list[Any] = [SelfRef()] if is_tick else [SelfRef(), EventRef()]
                    try:
                        self._call_handler(handler, given)
                    except Refused as refusal:
                        reason = f"{handler.name}: {refusal.reason}"
                        first = first or Refused(reason, refusal.line, refusal.file)
                        if not isinstance(refusal, ReadsAll) or not self._may_leave():
                            raise Refused(reason, refusal.line, refusal.file) from None
                        self._rollback(mark)
                        self._stack.clear()
                        self.leave()
                        unit.left[event.__name__] = reason
                        break
            body = rendered(self._lines) or ["            pass"]
            if any("jump" in line for line in body):
                body.insert(0, "            jump = 0")
            bodies.append(body)
        self._following_bodies = self._write_derived(own[0]) if self._sent else []
        if first is not None and not self._has_tables():
            raise first
        if unit.ticks:
            self._for_ticks()
        self._heads, self._bodies = heads, bodies
        unit.windows = {n: v for n in unit.states if (v := self._states[n].views) is not None}
        unit.hidden = {name: spec for name, spec in unit.hidden.items() if name in unit.states}
        unit.counted = {name: counter for name, counter in unit.counted.items() if counter in unit.states}
        unit.indexed = {name: h for name, h in unit.indexed.items() if {name, h} <= {*unit.states}}
        unit.pushes = {name: self._states[name].pushes for name in unit.windows}

    def finish(self) -> Unit:
        """Put the function together."""
        unit = self.unit
        columns = self._used_columns([*self._heads, *self._bodies])
        heads, bodies = columns[: len(self._heads)], columns[len(self._heads) :]
        following = [self._without_idle_room(body) for body in self._following_bodies]
        bodies = [self._without_idle_room(body) for body in bodies]
        leaves = any(_is_exit(line) for body in following for line in body)
        following = [share_rows(without_idle_saves(body, more=leaves)) for body in following]
        bodies = [share_rows(without_idle_saves(body, more=leaves)) for body in bodies]
        written = [*bodies, *following]
        self._count_rows(written)
        unit.undo = max((sum(line.endswith(UNDO) for line in body) for body in written), default=0)
        unit.keeps = (
            max((sum(_KEEPS in line for line in body) for body in written), default=0) if self.keeps else -1
        )
        unit.rejects = bool(self._rejections)
        unit.takes = bool(unit.raising) or (self._work.takes_out and bool(unit.later))
        bodies = [
            [*look_ahead(body, i, shared=unit.shared), *self._sliding(i), *body]
            for i, body in enumerate(bodies)
        ]
        unit.source = self._source(bodies, heads, self._following(following) if following else [])
        return unit

    def _count_rows(self, bodies: list[list[str]]) -> None:
        """How many rows an event can take, as the code now has it. Of a table the first state stands for all."""
        unit = self.unit
        for number, names in enumerate(unit.tables):
            made, taken = (
                re.compile(rf"= claim\d+\(t{number},|counts\[N{number}\] \+= 1$"),
                f"counts[N{number}] += take(",
            )
            first = next(name for name in names if name in unit.states)
            unit.claims[first] = max(
                (sum(bool(made.search(line)) for line in body) for body in bodies), default=0
            )
            unit.finds[first] = max((sum(taken in line for line in body) for body in bodies), default=0)

    def _events(self) -> list[list[PassHandler]]:
        """Find the unit's events; each one's handlers. What is called later is an event of its own."""
        unit, specs = self.unit, {h.name: (n, h) for n, h in enumerate(spec_of(self._program).handlers)}
        at_once: list[PassHandler] = []
        ticking: list[tuple[int, PassHandler]] = []
        late: list[tuple[type[Event], Later, PassHandler]] = []
        for handler in self._work.handlers:
            place, spec = specs.get(handler.name, (0, None))
            if spec is not None and spec.every is not None:
                if self.ticks_apart:
                    unit.ticks = True
                else:
                    ticking.append((place, handler))
            elif spec is not None and spec.after is not None:
                later = Later(span_of(self._program, spec.after), handler.name, place)
                late += [(event, later, handler) for event in handler.events]
            else:
                at_once.append(handler)
        unit.events = list(dict.fromkeys(e for h in at_once for e in h.events))
        own = [at_once for _ in unit.events]
        for event, later, handler in late:
            if any(unit.events[n] is event and known.lag == later.lag for n, known in unit.later.items()):
                raise Refused(f"{handler.name}: a second handler with after= of the same length")
            unit.later[len(unit.events)] = later
            unit.events.append(event)
            own.append([handler])
        for place, handler in ticking:
            unit.ticking[len(unit.events)] = Ticking(handler.name, place)
            unit.events.append(Instant)
            own.append([handler])
        if unit.ticks and not self._final:
            raise Refused("handlers of ticks run as Python in this pass")
        if unit.ticks:
            for state in spec_of(self._program).states.values():
                if issubclass(state.kind, Grouped):
                    raise Refused(f"@tl.every beside {state.name}, which may need an index")
        return own

    def _for_ticks(self) -> None:
        """Have a table for every state: what ticks use is not looked at."""
        for name in sorted(self._work.exact):
            self._state(name)

    def _may_leave(self) -> bool:
        """Whether all events of a type may be left to Python.

        An event that reads every key takes long in any case, so there are few of them: where there are not, the
        rest of the slice runs as Python. The index of a grouped state, and views, are not kept in tables.
        """
        grouped = any(issubclass(spec.kind, Grouped) for spec in spec_of(self._program).states.values())
        beyond = bool(spec_of(self._program).times) and not self._work.timeless
        return not (self.unit.shared or grouped or beyond)

    def _has_tables(self) -> bool:
        """Whether every state of the pass has a table, and some events are compiled."""
        unit, work = self.unit, self._work
        return work.exact | work.delta <= set(unit.states) and len(unit.left) < len(unit.events)

    def _ownership(self, event: str) -> list[str]:
        """The code that finds an event's key, and last whose event it is."""
        assert self._work.by_key is not None
        key = self._work.by_key.keys.get(event)
        self._own = None
        if key is None:  # it touches no state: one worker is as good as another
            self.line("whose = 0")
        else:
            text = key.function.__dict__["__tl_text__"]
            value = self._call(key.function, [SelfRef(), EventRef()], {}, 0, text)
            items = value.items if value.kind == "tuple" else (value,)
            if any(item.kind not in ("int", "bool", "str", "bytes") for item in items):
                raise Refused(f"events shared out by {key.text}, which is {value.text}", self._line)
            own = tuple(word(i if _PLAIN.match(i.code) else self.temp(i.kind, i.code)) for i in items)
            self._own = own
            folded = own[0]
            for more in own[1:]:
                folded = f"fold({folded}, {more})"
            self.line(f"whose = owner({folded}, workers)")
        lines = rendered(self._lines)
        if any(_is_exit(line) or SPEND in line for line in lines):
            raise Refused(
                f"events shared out by {key.text if key else ''}, which may leave to Python", self._line
            )
        return ["            jump = 0", *lines] if any("jump" in line for line in lines) else lines

    def _sliding(self, event: int) -> list[str]:
        """Lines to stand before an event type's code: the views that it looks at come up to the event's time."""
        self._lines, self._event, self._indent = [], event, 3
        unit = self.unit
        for _, name, lag in dict.fromkeys(s for s in self._slides if s[0] == event):
            i, views, log = unit.table_with(name), unit.windows[name], unit.states.index(name)
            cursor, layout = views.cursor(lag), unit.layouts[name]
            edge = self.name("x")
            back = f"k{log}[{cursor + 1}]"  # ticks see W back what stood before
            self.line(f"{edge} = minus({self.now}, {f'plus({back}, 1)' if event in unit.ticking else back})")
            place = f"k{log}[{cursor}]"
            soon = f"{place} < k{log}[{USED}] and w{log}[np.uint64({place}), 0] <= {edge}"
            with self.block(f"if {soon} and {edge} < {self.now}:"):
                hidden = members_spec(spec_of(self._program).states[name], lag).name
                given = f"w{log}, k{log}, {cursor}"
                if hidden in unit.states:
                    h = unit.tables.index((hidden,))
                    counts = f"t{h}, m{h}, {unit.layouts[hidden].place}, {unit.layouts[hidden].width}"
                    self.line(
                        f"slide_members({given}, t{i}, {layout.twins}, N{layout.present}, {counts}, {edge})"
                    )
                elif views.stamped:
                    self.line(f"skip({given}, {edge})")
                elif views.queued:
                    at = layout.twins + 1 + views.lags.index(lag)
                    self.line(f"slide_queues({given}, t{i}, {at}, {edge})")
                else:
                    at = layout.twins + views.lags.index(lag)
                    self.line(f"slide({given}, t{i}, {at}, {edge})")
        return rendered(self._lines)

    def _used_columns(self, bodies: list[list[str]]) -> list[list[str]]:
        """The code with the columns that it reads alone; those are what the unit has then."""
        unit = self.unit
        used = sorted({int(n) for body in bodies for line in body for n in _COLUMN.findall(line)})
        unit.columns = [unit.columns[i] for i in used]
        numbers = {old: new for new, old in enumerate(used)}
        return [[_COLUMN.sub(lambda m: f"col{numbers[int(m[1])]}", line) for line in body] for body in bodies]

    def arguments(self) -> list[tuple[str, str]]:
        """Names and Numba types of the function's arguments."""
        unit = self.unit
        found = [("kind", "KINDS"), ("lo", "int64"), ("hi", "int64"), ("pos", "INTS"), ("counts", "INTS"),
                 ("emitted", "INTS"), ("undo", "TABLE"), ("refused", "TABLE"), ("budget", "int64")]  # fmt: skip
        for i in range(len(unit.events)):
            found += [(f"ts{i}", "RINTS"), (f"seq{i}", "RINTS")]
        for i, column in enumerate(unit.columns):
            found.append((f"col{i}", {"float": "RFLOATS", "bool": "RBOOLS"}.get(column.kind, "RINTS")))
        for i in range(len(unit.tables)):
            found += [(f"t{i}", "TABLE"), (f"m{i}", "uint64"), (f"s{i}", "INTS"), (f"b{i}", "TABLE")]
        for name in unit.windows:
            log = unit.states.index(name)
            found += [(f"w{log}", "TABLE"), (f"k{log}", "INTS")]
        for index in map(unit.states.index, unit.indexed):
            found += [(f"nodes{index}", "TABLE"), (f"linked{index}", "INTS")]
        if unit.lists:
            found += [("listed", "TABLE"), ("starts", "INTS"), ("spelt", "BYTES")]
        if unit.ticking:
            found.append(("ticked", "INTS"))
        if unit.sends:
            found.append(("sent", "TABLE"))
        if unit.keeps >= 0:
            found.append(("kept", "TABLE"))
        if unit.takes:
            found += [("takes", "INTS"), ("gone", "INTS")]
        found += [(f"p_{n}", {"float": "float64", "bool": "boolean"}.get(k, "int64")) for n, k in unit.params]
        for i, record in enumerate(unit.records):
            found.append((f"o{i}_place", "TABLE"))
            for name, kind in record_columns(record):
                found.append((f"o{i}_{name}", {"float": "FLOATS", "bool": "BOOLS"}.get(kind, "INTS")))
        if unit.shared:
            found += [("mine", "TABLE"), ("worker", "int64"), ("workers", "int64")]
        return found

    def _source(self, bodies: list[list[str]], heads: list[list[str]], following: list[str]) -> str:
        unit = self.unit
        arguments = self.arguments()
        widths = sorted({layout.width for layout in unit.layouts.values() if layout.width > WIDTHS})
        lines = [
            *(wide(width) for width in widths),
            "SIGNATURE = (" + ", ".join(kind for _, kind in arguments) + ",)",
            "", "",
            f"def run({', '.join(name for name, _ in arguments)}):",
            "    u = np.int64(0)",
        ]  # fmt: skip
        for i in range(len(unit.events)):
            lines.append(f"    q{i} = np.uint64(pos[{i}])")
        if unit.shared:
            lines += self._sharing(heads)
            lines += [
                "        j = mine[turn, 0]",
                "        own = np.uint64(mine[turn, 1])",
                "        turn += 1",
            ]
        else:
            lines.append("    for j in range(lo, hi):")
        lines += ["        k = kind[j]", "        ordinal = 0"]
        if unit.undo:
            lines.append("        u = np.int64(0)")
        if unit.loops:
            lines.append("        rounds = budget")
        if unit.lists:
            lines.append("        listing = np.int64(0)")
        if unit.sends:
            lines.append("        queued = np.int64(0)")
        for i, record in enumerate(unit.records):
            if record.__reads__:  # nothing in their rows says which event they are of
                lines.append(f"        emitted[{len(unit.records) + 1 + i}] = emitted[{i}]")
        if following:
            lines += self._transaction(bodies, following)
        for i, body in enumerate([] if following else bodies):
            lines.append(f"        {'if' if i == 0 else 'elif'} k == {i}:")
            if unit.shared:
                lines += [f"            q{i} = own", *heads[i][:-1]]
            if unit.takes and i in unit.later:  # of an event that was taken out nothing comes later
                turn = TAKES + list(unit.later).index(i)
                body = [
                    f"            if not is_gone(takes, gone, {turn}, seq{i}[q{i}]):",
                    *("    " + b for b in body),
                ]
            if i in unit.ticking:  # records of one tick are numbered through all its handlers
                now = f"ts{i}[q{i}]"
                lines += [f"            ordinal = ticked[1] if ticked[0] == {now} else 0", *body]
                lines += [f"            ticked[0] = {now}", "            ticked[1] = ordinal"]
            elif any(r.event == i for r in self._rejections):
                lines += ["            rejected = 0", "            while True:", *("    " + b for b in body)]
                lines += ["                break", *self._rejection(i)]
            else:
                lines += body
            noted = {int(n) for line in body for n in _NOTED.findall(line)}
            lines += [f"            k{n}[{KEPT}] = k{n}[{USED}]" for n in sorted(noted)]
            if not unit.shared:
                lines.append(f"            q{i} += ONE")
        last = "end" if unit.shared else "q"
        lines += [f"    pos[{i}] = {last}{i}" for i in range(len(unit.events))]
        lines += ["    return 0", ""]
        # Numba compiles a function anew for each literal that it is given; these are numbers like others.
        lines = [_LITERAL.sub(_numbered, line) for line in lines]
        numbers = sorted({int(n) for line in lines for n in _NUMBER.findall(line)})
        less = sorted({int(n) for line in lines for n in _NEGATIVE.findall(line)})
        named = [*(f"N{n} = np.int64({n})" for n in numbers), *(f"M{n} = np.int64(-{n})" for n in less)]
        return "\n".join([*named, "", *lines])

    def _sharing(self, heads: list[list[str]]) -> list[str]:
        """The loop over the worker's own events, which are listed first, a few at a time, each with its row among those of
        its type: without a branch that nobody can predict, and so that what is looked up ahead is for events that are its own.
        """
        lines = ["    turn = turns = 0", "    first = lo"]
        lines += [f"    end{i} = q{i}" for i in range(len(heads))]
        lines += [
            "    while turn < turns or first < hi:",
            "        if turn == turns:",
            "            turn = turns = 0",
        ]
        lines += [f"            last = min(first + {LISTED}, hi)"]
        lines += [f"            q{i} = end{i}" for i in range(len(heads))]
        lines += ["            for j in range(first, last):", "                k = kind[j]"]
        for i, head in enumerate(heads):
            lines += [
                f"                {'if' if i == 0 else 'elif'} k == {i}:", *("        " + line for line in head),
                "                    mine[turns, 0] = j", f"                    mine[turns, 1] = np.int64(q{i})",
                "                    turns += np.int64(whose == worker)", f"                    q{i} += ONE",
            ]  # fmt: skip
        lines += [f"            end{i} = q{i}" for i in range(len(heads))]
        return [*lines, "            first = last", "            continue"]
