"""Random programs of all kinds, replayed every way there is: which features each has, and how it is run."""

from __future__ import annotations

import ast
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.engine.planned import replay_by
from tests.native.fuzz.emulate import emulated
from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.engine.executor import LocalExecutor
from timelapse.errors import HandlerError, TimelapseError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.plan import make_plan
from timelapse.program.program import spec_of
from timelapse.run import Run, run_serial
from timelapse.testing import assert_same

KINDS = ("other times", "other times", "other times", "by key", "by key", "hidden")
REACHED = (
    "quarantine", "events taken out", "window", "dated write", "dated event", "tick", "after=",
    "tick writes what is looked back on", "MapOf by method", "MapOf by method, with a window",
    "MapOf by method, dated", "raise", "raised", "by key", "by key, compiled, ran as Python", "long sum",
    "long elif chain", "hidden state", "hidden state refused",
)  # fmt: skip
"""What many programs must have reached, or their tries say little."""
LONG = 300
_WAYS = ((1, None), (2, None), (3, None), (3, "staged"), (7, "chain"), (7, None), (16, None))


@dataclass
class Reached:
    """How many programs had which feature."""

    programs: int = 0
    features: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        shown = "\n".join(f"{self.features[name]:6} {name}" for name in (*REACHED, *self._others))
        return f"{self.programs} programs of all kinds, replayed every way:\n{shown}"

    @property
    def _others(self) -> list[str]:
        return sorted(set(self.features) - set(REACHED))

    @property
    def missing(self) -> list[str]:
        return [name for name in REACHED if not self.features[name]]


class Unnoticed(AssertionError):
    """A program with hidden state was replayed without a word."""


def try_one(seed: int, patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Replay one program every way. Raises AssertionError with its seed where anything is not the serial meaning."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    patch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    reached.programs += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = {"other times": _other_times, "by key": _by_key, "hidden": _hidden}[kind]
            reached.features.update(set(run(rng, patch)))
    except Exception as error:
        raise AssertionError(f"seed {seed}, {kind}: {error!r}") from error


# --- programs in other times -------------------------------------------------------------------------


def _other_times(rng: random.Random, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Windows, ticks, timers, dated writes; a raise in some; quarantine in one of four of these programs and more of those."""
    text = random_program(rng, 3, further=rng.random() < 0.6)
    if rng.random() < 0.4:
        text = sending(rng, text, later=rng.random() < 0.6)
    if rng.random() < 0.7:
        made = in_other_times(rng, text)
        text = made if "@tl.on(" in made else text
    if rng.random() < 0.4:
        text = _with_map(rng, text)
    if rng.random() < 0.7:
        text = looking(rng, text, dated=rng.choice((0.0, 0.3, 0.6)))
        if rng.random() < 0.5:
            text = _ticking(rng, text)
    if rng.random() < 0.5:
        text = raising(rng, text)
    if rng.random() < 0.2:
        text = deep(rng, text)
    program = load_source(text)
    yield from features_of(text, program)
    found = random_events(program, random.Random(rng.random()), rng.choice((8, 14, 20)))
    events = [event._at(event.ts, n) for n, event in enumerate(found)]
    quarantine = rng.random() < (0.6 if "raise ValueError" in text else 0.1)
    patch.setenv(SWITCH, rng.choice(("interpreted", "python", "native")))
    if quarantine:
        yield "quarantine"
    try:
        types = list(dict.fromkeys([*spec_of(program).events, *(type(e) for e in events)]))
        ways = rng.sample(_WAYS, 2)
        run = same(program, MemoryLog(events, types), ways, quarantine=quarantine)
    except HandlerError as error:
        assert not quarantine or error.seq < 0, error  # a tick
        yield "raised"
    else:
        if run.left_out:
            yield "events taken out"
            plain, gone = _one_by_one(program, events)
            assert (plain.digest, plain.state_digest, gone) == (run.digest, run.state_digest, run.left_out)


def _one_by_one(program: type[tl.Program], events: list[Event]) -> tuple[Run, list[int]]:
    """The meaning of quarantine spelt out: whenever the run fails, it is run again without that event."""
    gone: list[int] = []
    while True:
        try:
            return run_serial(program, [e for e in events if e.seq not in gone]), sorted(gone)
        except HandlerError as failure:
            gone.append(failure.seq)


def raising(rng: random.Random, text: str) -> str:
    """A program's source with raises at a few events, in handlers of events, before writes and behind them."""
    module = ast.parse(text)
    handlers = [
        node for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"h\d", node.name) and len(node.args.args) == 2
    ]  # fmt: skip
    for handler in rng.sample(handlers, min(len(handlers), rng.randint(1, 2))):
        test = f"e.a == {rng.randrange(4)} and e.b == {rng.randrange(4)}"
        made = ast.parse(f'if {test}:\n    raise ValueError(f"at {{e.b}}")').body
        place = rng.randint(0, len(handler.body))
        handler.body[place:place] = made
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def deep(rng: random.Random, text: str) -> str:
    """A program's source with a long sum or a long chain of branches in a handler."""
    places = [m.end() for m in re.finditer(r"    def h\d\(self, e\):\n", text)]
    if not places:
        return text
    if rng.random() < 0.5:
        long = f"        n = k = {' + '.join(rng.choice(('e.a', 'e.b', '1')) for _ in range(LONG))}\n"
    else:
        branches = [f"{'el' if n else ''}if e.a * 97 + e.b == {n}:\n            k = {n}" for n in range(LONG)]
        long = "        k = 0\n" + "".join(f"        {branch}\n" for branch in branches)
    place = rng.choice(places)
    return text[:place] + long + text[place:]


def _with_map(rng: random.Random, text: str) -> str:
    """With a MapOf that is written by method and read, in a handler."""
    places = [m.end() for m in re.finditer(r"    @tl.on\([^()]*\)\n    def h\d\(self, e\):\n", text)]
    if not places:
        return text
    lines = [
        "        self.s9.set((e.a, e.b % 3), e.b + 1)", "        self.s9.discard((e.b, 1))",
        "        self.emit(Out(a=self.s9[e.a, e.b % 3], b=self.s9.count(e.a)))",
    ]  # fmt: skip
    rng.shuffle(lines)
    place = rng.choice(places)
    text = text[:place] + "\n".join(lines) + "\n" + text[place:]
    return text.replace(
        "    limit: int = 2\n",
        "    limit: int = 2\n    s9: tl.MapOf[int, int, int] = tl.state(default=0)\n",
        1,
    )


_TICK_WRITES = {
    "Counter[int]": "self.{}[self.now % 4] += 1", "Value[int, int]": "self.{}[self.now % 4] = self.now % 7",
    "Value[int, int | None]": "self.{}[self.now % 4] = self.now % 7", "Set[int]": "self.{}.add(self.now % 4)",
    "Set[tuple[int, int]]": "self.{}.add((self.now % 4, self.now % 3))", "Max[int, int]": "self.{}.add(self.now % 4, self.now % 7)",
    "Min[int, int]": "self.{}.add(self.now % 4, self.now % 7)", "First[int, int]": "self.{}.add(self.now % 4, self.now % 7)",
    "SetOf[int, int]": "self.{}.add(self.now % 4, self.now % 3)", "Mean[int]": "self.{}.add(self.now % 4, self.now % 7)",
    "MapOf[int, int, int]": "self.{}.set((self.now % 4, self.now % 3), self.now % 7)",
    "ListOf[int, int]": "self.{}.append(self.now % 4, self.now % 7)",
}  # fmt: skip


def _ticking(rng: random.Random, text: str) -> str:
    """With a tick that writes a state that handlers look back on, where there is one of a kind that is known here."""
    declared = dict(re.findall(r"^    (s\d): tl\.(\S.*?\])(?: = .*)?$", text, re.MULTILINE))
    seen = sorted(set(re.findall(r"self\.(s\d)\.(?:last|ago|past)\(", text)))
    writes = [
        _TICK_WRITES[declared[name]].format(name) for name in seen if declared.get(name) in _TICK_WRITES
    ]
    if not writes:
        return text
    return f"{text.rstrip()}\n\n    @tl.every({rng.choice((1, 2, 5, 8))})\n    def t9(self):\n        {rng.choice(writes)}\n"


def features_of(text: str, program: type[tl.Program]) -> Iterator[str]:
    """What a program's text and declaration have."""
    spec = spec_of(program)
    uses = {use.what for use in spec.times}
    names = {
        "last": "window", "ago": "window", "past": "past", "dated": "dated write", "send": "dated event",
        "every": "tick", "after": "after=", "derive": "send",
    }  # fmt: skip
    yield from {names[what] for what in uses if what in names}
    maps = [name for name, state in spec.states.items() if state.kind.__name__ == "MapOf"]
    for name in maps:
        if re.search(rf"self\.{name}\.(set|discard)\(\(", text):
            yield "MapOf by method"
            if any(use.state == name and use.what in ("last", "ago") for use in spec.times):
                yield "MapOf by method, with a window"
            if re.search(rf"self\.{name}\.(set|discard)\(\(.*at=", text):
                yield "MapOf by method, dated"
    seen = {use.state for use in spec.times if use.what in ("last", "ago", "past")}
    for body in re.findall(r"    @tl\.every\(.*\)\n(    def .*\n(?:        .*\n|\n)*)", text):
        written = re.findall(r"self\.(s\d)(?:\.(?:add|set|append|discard|pop)\(|\[[^]]*\] [-+*]?= )", body)
        if seen & set(written):
            yield "tick writes what is looked back on"
    if "raise ValueError" in text:
        yield "raise"
    if re.search(r"(e\.\w|1)( \+ (e\.\w|1)){200}", text):
        yield "long sum"
    if re.search(r"== 250:", text):
        yield "long elif chain"


# --- programs by key ---------------------------------------------------------------------------------

_BY_KEY_STATES = {
    "c": "tl.Counter[int]", "v": "tl.Value[int, int] = tl.state(default=1)", "x": "tl.Max[int, int] = tl.state(default=0)",
    "m": "tl.MapOf[int, int, int] = tl.state(default=0)", "s": "tl.SetOf[int, int]", "w": "tl.Mean[int]",
    "f": "tl.Value[int, float] = tl.state(default=0.5)", "t": "tl.Set[tuple[int, int]]",
}  # fmt: skip
_BY_KEY_WRITES = (
    "self.c[e.a] += e.b", "self.c[e.a] -= 1", "self.v[e.a] = self.v[e.a] * 3 + e.b", "self.v[e.a] *= 2**21 if e.b == 7 else 1",
    "self.x.add(e.a, e.b)", "self.m[e.a, e.b % 3] += 1", "self.m.set((e.a, e.b % 3), self.m[e.a, 1] + e.b)",
    "self.m.discard((e.a, 1))", "self.s.add(e.a, e.b % 4)", "self.s.discard(e.a, e.b % 3)", "self.w.add(e.a, e.b)",
    "self.f[e.a] = self.f[e.a] * 0.9 + 0.1 * e.b", "self.t.add((e.a, e.b))", "self.t.discard((e.a, e.b))",
)  # fmt: skip
_BY_KEY_READS = (
    "self.c[e.a]", "self.v[e.a] % 1000", "self.x[e.a]", "self.m[e.a, e.b % 3]", "self.m.count(e.a)",
    "self.s.count(e.a)", "int((e.a, 1) in self.s)", "self.w.count(e.a)", "int(self.f[e.a])",
    "int((e.a, e.b) in self.t)",
)  # fmt: skip


def by_key_program(rng: random.Random) -> str:
    """The source of a program P that keeps everything under the event's own key."""
    lines = ["import timelapse as tl", "", "", "class E(tl.Event):", "    a: int", "    b: int", "", "",
             "class Out(tl.Record):", "    a: int", "    b: int", "", "", "class P(tl.Program):"]  # fmt: skip
    lines += [f"    {name}: {declared}" for name, declared in _BY_KEY_STATES.items()]
    plain = rng.random() < 0.6  # what compiles
    reads = [r for r in _BY_KEY_READS if not plain or "m.count" not in r]
    writes = list(_BY_KEY_WRITES)
    for number in range(rng.randint(1, 2)):
        lines += ["", "    @tl.on(E)", f"    def h{number}(self, e):"]
        for _ in range(rng.randint(2, 6)):
            test = f"{rng.choice(reads)} % {rng.randint(2, 5)} == {rng.randrange(2)}"
            body = rng.choice(writes)
            match rng.randrange(8):
                case 0:
                    body = f"if {test}:\n            self.emit(Out(a=e.a, b={rng.choice(reads)}))"
                case 1:
                    body = f"if e.b == {rng.randrange(9)} and {test}:\n            raise ValueError(e.b)"
                case 2:
                    body = f"if e.b == {rng.randrange(9)} and {test}:\n            self.reject('no')"
                case 3:
                    body = f"if {test}:\n            {body}"
                case 4:
                    body = f"self.emit(Out(a=e.b, b={rng.choice(reads)}))"
            lines.append(f"        {body}")
    return "\n".join(lines) + "\n"


def _by_key(rng: random.Random, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Threads share out one compiled pass; the same as Python, in slices; with quarantine in one of two."""
    text = by_key_program(rng)
    program = load_source(text)
    cls: Any = next(iter(spec_of(program).events))
    now, events = 0, list[Event]()
    for _ in range(rng.choice((30, 200, 400))):
        now += rng.choice((0, 1, 3))
        events.append(cls(a=rng.randrange(6), b=rng.randrange(12), ts=now))
    log = MemoryLog(events, [cls])
    quarantine = rng.random() < 0.5
    yield from features_of(text, program)
    yield "by key"
    if quarantine:
        yield "quarantine"
    made = program()
    try:
        reference = run_serial(made, log, quarantine=quarantine)
    except HandlerError as error:
        failed: HandlerError | None = error
        yield "raised"
    else:
        failed = None
        if reference.left_out:
            yield "events taken out"
    patch.setenv(SWITCH, "native")
    with tempfile.TemporaryDirectory() as folder:
        for workers, slices in ((1, 1), (2, 1), (3, 4)):
            plan = make_plan(analyse(made), cores=workers, threads=workers, slices=slices, force="by key")
            assert plan.mode == "by key"
            try:
                out = Path(folder) / f"{workers}-{slices}"
                run = replay_by(
                    plan, made, log, LocalExecutor(threads=workers), out, slices, quarantine=quarantine
                )
            except HandlerError as error:
                assert failed is not None, error
                assert (error.seq, error.cause) == (failed.seq, failed.cause)
            else:
                assert failed is None, f"{failed.message}: not found by {workers} workers"
                assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
                assert run.quarantined == reference.quarantined
                shared = (
                    run.certificate["by_key"]["workers"] > 1
                    and "compiled" in run.certificate["passes"].values()
                )
                if shared and run.left_out:
                    yield "by key, compiled, ran as Python"
    patch.setenv(SWITCH, rng.choice(("python", "interpreted")))
    try:
        same(made, log, [(3, None)], quarantine=quarantine)
    except HandlerError as error:
        assert failed is not None
        assert error.seq == failed.seq


def same(
    program: type[tl.Program] | tl.Program, log: MemoryLog, ways: Sequence[tuple[int, str | None]], *, quarantine: bool
) -> Run:  # fmt: skip
    """The reference, after replays in so many slices by these strategies were the same. Raises HandlerError likewise."""
    failed, reference = None, None
    try:
        reference = run_serial(program, log, quarantine=quarantine)
    except HandlerError as error:
        failed = error
    for slices, strategy in ways:
        name = f"{slices} slices, {strategy}"
        try:
            run = tl.replay(
                program, log, slices=slices, strategy=strategy, spark=False, quarantine=quarantine
            )
        except HandlerError as error:
            assert failed is not None, f"{name}: {error}"
            assert (error.seq, error.handler, error.event) == (failed.seq, failed.handler, failed.event), name
            continue
        assert reference is not None, f"{name}: {failed} is not found"
        assert_same(reference, run, names=("serial", name))
        assert run.quarantined == reference.quarantined, name
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest), name
        assert run.pending == reference.pending, name
        assert (found := run.verify()).ok, f"{name}: {found.text}"
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], f"{name}: {fallback}"
    if failed is not None:
        raise failed
    assert reference is not None
    return reference


# --- helpers with hidden state -----------------------------------------------------------------------

_HIDDEN = (
    ("def factory():\n    n = 0\n    def helper(x):\n        nonlocal n\n        n += 1\n        return x + n\n    return helper\n\n\nhelper = factory()\n", "helper(e.a)"),
    ("import itertools\nticket = itertools.count()\n", "next(ticket)"),
    ("seen = []\n\n\ndef helper(x):\n    seen.append(x)\n    return len(seen)\n", "helper(e.a)"),
    ("class Box:\n    n = 0\n    def more(self, x):\n        self.n += x\n        return self.n\n\n\nbox = Box()\n", "box.more(e.a)"),
    ("import random\ndice = random.Random(3)\n", "dice.randrange(100)"),
    ("calls = {}\n\n\ndef helper(x):\n    calls[x] = calls.get(x, 0) + 1\n    return calls[x]\n", "helper(e.a)"),
)  # fmt: skip


def _hidden(rng: random.Random, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """What remembers outside of states is refused, or found out; a wrong result without a word is not."""
    before, call = rng.choice(_HIDDEN)
    text = (
        f"import timelapse as tl\n{before}\n\nclass E(tl.Event):\n    a: int\n\n\nclass Out(tl.Record):\n    n: int\n\n\n"
        "class P(tl.Program):\n    c: tl.Counter[int]\n\n    @tl.on(E)\n    def go(self, e):\n"
        f"        self.c[e.a] += {call} % 5\n        self.emit(Out(n=self.c[e.a]))\n"
    )
    yield "hidden state"
    patch.setenv(SWITCH, rng.choice(("python", "native")))
    try:
        program = load_source(text)
        cls: Any = next(iter(spec_of(program).events))
        events = [cls(a=rng.randrange(3), ts=n) for n in range(20)]
        run = tl.replay(program, events, slices=rng.choice((1, 3)), spark=False)
    except TimelapseError as error:
        assert error.code not in ("", "TL000"), error
        yield "hidden state refused"
    else:
        raise Unnoticed(f"replayed without a word (digest {run.digest}):\n{text}")


def reached_all(reached: Reached, tried: Sequence[int]) -> None:
    """Raises AssertionError where tries enough to expect it did not reach a feature."""
    print(reached.text)
    if len(tried) >= 300:
        assert not reached.missing, f"never reached: {', '.join(reached.missing)}\n{reached.text}"
