"""Compiled passes on disk: found again, shared by processes that race, rebuilt where damaged, never an error."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import DEPTH, FULL
from tests.native.programs import A
from tests.patience import LONG
from timelapse.analysis import analyse, final_pass
from timelapse.errors import UsageError
from timelapse.kernels import choose
from timelapse.kernels.native import build
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.machine import jit, objects, store, version
from timelapse.kernels.native.machine.check import kernel_cache
from timelapse.kernels.tuning import USUAL, KernelTuning

SOURCE = "SIGNATURE = (int64,)\n\n\ndef run(n):\n    return n + {}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has loaded nothing."""
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_LOADED", {})
    jit.COUNTS.clear()
    return tmp_path / "cache" / "kernels"


def unit(n: int = 1) -> Unit:
    return Unit(source=SOURCE.format(n))


def forget() -> None:
    """As a new process would begin."""
    build._LOADED.clear()
    jit.COUNTS.clear()


def entry(of: Unit, cache: Path) -> Path:
    return cache / f"{build._name(build.text_of(of))}.kernel"


def counts() -> dict[str, int]:
    return {k: v for k, v in jit.COUNTS.items() if v}


def test_an_entry_is_found_again(cache: Path) -> None:
    assert not build.is_compiled(unit())
    assert build.loaded(unit()) is None
    assert build.compiled(unit())(41) == 42
    assert counts() == {"compiled": 1}
    assert [e.bytes for e in store.entries()] == [entry(unit(), cache).stat().st_size] == [store.size()]
    forget()
    assert build.is_compiled(unit())
    found = build.loaded(unit())
    assert found is not None
    assert found(41) == 42
    assert build.compiled(unit()) is found
    assert counts() == {"loaded": 1}
    assert not build.is_compiled(unit(2))


CHILD = """
import json, sys, time
from pathlib import Path
from timelapse.kernels.native import build
from timelapse.kernels.native.machine import jit, version
from timelapse.kernels.native.memory.primitives import owner
from timelapse.kernels.native.lowering.unit import Unit
unit = Unit(source=sys.argv[1])
version.compiler_version()
if len(sys.argv) > 2:
    Path(sys.argv[2]).touch()
    while not Path(sys.argv[3]).exists():
        time.sleep(0.01)
function = build.compiled(unit)
print(json.dumps([function(41), int(owner(7, 4)), {k: v for k, v in jit.COUNTS.items() if v}]))
"""


def child(*arguments: str, code: str = CHILD) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0
    return json.loads(out)


def test_processes_that_race_compile_once_and_a_later_one_not_at_all(tmp_path: Path) -> None:
    """Two that want the same pass at once: one compiles, the other waits for it. Primitives are kept too."""
    source, go = unit().source, tmp_path / "go"
    both = [child(source, str(tmp_path / f"ready{i}"), str(go)) for i in range(2)]
    while not all((tmp_path / f"ready{i}").exists() for i in range(2)):
        time.sleep(0.01)
        assert all(p.poll() is None for p in both)
    go.touch()
    first, second = (result(p) for p in both)
    assert first[:2] == second[:2] == [42, first[1]]
    passes = sorted([c.get("compiled", 0), c.get("loaded", 0)] for c in (first[2], second[2]))
    assert sum(c for c, _ in passes) == 2  # the pass once, the primitive once
    later = result(child(source))
    assert later == [42, first[1], {"loaded": 2}]


LINKED = "SIGNATURE = (int64,)\n\n\ndef run(n):\n    return int64(uint64(owner(n, n)) & uint64(255)) + n\n"
NO_PICKLE = """
import pickle

def refuse(*_, **__):
    raise AssertionError("something was unpickled")

pickle.loads = pickle.load = pickle.Unpickler = refuse
"""


def test_an_entry_is_object_code_and_data(cache: Path) -> None:
    """Reading one unpickles nothing, and a function that was read can still be linked into a new one."""
    first = result(child(LINKED))
    assert first[2]["compiled"] == 2
    for path in cache.iterdir():
        data = path.read_bytes()[len(store._MAGIC) + 32 :]
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size])
        assert head["result"] in ("int64", "uint64")
        assert 0 < head["code"] <= len(data) - 8 - size
    assert result(child(LINKED, code=NO_PICKLE + CHILD)) == [*first[:2], {"loaded": 2}]
    entry(Unit(source=LINKED), cache).unlink()
    again = result(child(LINKED))
    assert again[:2] == first[:2]
    assert (again[2]["compiled"], again[2]["loaded"]) == (1, 1)


TABLES = """SIGNATURE = (TABLE, TABLE, int64)


def run(undo, table, n):
    return save(undo, n, N1, table, N1, N2, N2)
""".replace("N1", "int64(1)").replace("N2", "int64(2)")
ON_TABLES = """
import json, sys
import numpy as np
from timelapse.kernels.native import build
from timelapse.kernels.native.machine import jit
from timelapse.kernels.native.lowering.unit import Unit
undo, table = np.zeros((2, 5), np.int64), np.arange(8).reshape(2, 4)
found = build.compiled(Unit(source=sys.argv[1]))(undo, table, 1)
print(json.dumps([found, undo.tolist(), jit.COUNTS["compiled"], jit.COUNTS["loaded"]]))
"""


def test_a_function_of_tables_is_called_as_it_was_compiled(cache: Path) -> None:
    """By the process that compiled it, by one that loads both, and by one that loads it and compiles what calls it."""
    meant = [2, [[0, 0, 0, 0, 0], [1, 1, 4, 6, 7]]]
    assert result(child(TABLES, code=ON_TABLES)) == [*meant, 2, 0]
    assert result(child(TABLES, code=ON_TABLES)) == [*meant, 0, 1]
    entry(Unit(source=TABLES), cache).unlink()
    assert result(child(TABLES, code=ON_TABLES)) == [*meant, 1, 1]


@pytest.mark.parametrize(
    ("result", "value"),
    [("0", 0), ("-1", -1), ("n < 0", False), ("True", True), ("n * 0.5", 2.0), ("2.5", 2.5), ("None", None),
     ("np.uint64(n)", 4), ("n if n < 0 else 7", 7), ("(n, True)", (4, True))],
)  # fmt: skip
def test_functions_are_read_back_whatever_they_return(result: str, value: Any) -> None:
    """Also one that always returns the same, as a pass does that cannot leave."""
    made = Unit(source=f"SIGNATURE = (int64,)\n\n\ndef run(n):\n    return {result}\n")
    assert build.compiled(made)(4) == value
    assert counts() == {"compiled": 1}
    forget()
    found = build.loaded(made)
    assert found is not None
    assert found(4) == value
    assert counts() == {"loaded": 1}


REFUSED = """SIGNATURE = (int64,)


def run(n):
    return mix("a")
"""


def test_a_function_that_could_not_be_compiled_keeps_nobody_waiting(cache: Path) -> None:
    """Other processes may try it at once, and find the same."""
    for _ in range(2):
        with pytest.raises(build.NotCompiled):
            build.compiled(Unit(source=REFUSED))
        assert not jit._MAKING
    code = CHILD.replace("function = build.compiled(unit)", "try:\n    build.compiled(unit)\nexcept build.NotCompiled:\n    print('[]')\n    sys.exit()")  # fmt: skip
    assert result(child(REFUSED, code=code)) == []


MADE = "SIGNATURE = (int64,)\n\n\ndef run(n):\n    found = np.zeros((2, n), np.uint64)\n    found[1, 0] = 3\n    return found\n"
READ = """
import json, sys
from timelapse.kernels.native import build
from timelapse.kernels.native.machine import jit
from timelapse.kernels.native.lowering.unit import Unit
found = build.compiled(Unit(source=sys.argv[1]))(2)
print(json.dumps([found.tolist(), str(found.dtype), dict(jit.COUNTS)]))
"""


def test_a_function_that_makes_an_array_is_kept() -> None:
    """What it needs to hand an array out is the type of its elements, a Python object: that is described too."""
    for counted in ({"compiled": 1, "unkept": 0}, {"loaded": 1}):
        assert result(child(MADE, code=READ)) == [[[0, 0], [3, 0]], "uint64", counted]


NEEDS = """
import json, sys
from timelapse.kernels.native import build
from timelapse.kernels.native.machine import jit
from timelapse.kernels.native.lowering.unit import Unit
found = build.compiled(Unit(source=sys.argv[1]))(4)
print(json.dumps([found == hash("4"), "numba.np.arraymath" in sys.modules, dict(jit.COUNTS)]))
"""


@pytest.mark.parametrize(("returned", "more"), [("hash(str(n))", True), ("n * -1158129741", False)])
def test_all_of_numba_is_loaded_only_for_what_needs_it(returned: str, more: bool) -> None:
    """Loading what can be compiled takes longer than loading what was; code that calls something of it still finds it."""
    source = f"SIGNATURE = (int64,)\n\n\ndef run(n):\n    return {returned}\n"
    assert result(child(source, code=NEEDS)) == [more, True, {"compiled": 1, "unkept": 0}]
    assert result(child(source, code=NEEDS)) == [more, more, {"loaded": 1}]


def test_what_cannot_be_described_is_not_kept(cache: Path) -> None:
    """It is compiled by each process for itself."""
    odd = Unit(source="SIGNATURE = (int64,)\n\n\ndef run(n):\n    return {n: n}\n")
    assert build.compiled(odd)(3) == {3: 3}  # type: ignore[comparison-overlap]
    assert counts() == {"compiled": 1, "unkept": 1}
    assert store.entries() == []


@pytest.mark.parametrize("damage", ["cut", "empty", "byte", "other", "garbage"])
def test_a_damaged_entry_is_compiled_again(damage: str, cache: Path) -> None:
    """And where nothing may be compiled it counts as missing."""
    build.compiled(unit())
    path = entry(unit(), cache)
    whole = path.read_bytes()
    for wait in (False, True):
        forget()
        middle = len(whole) // 2
        if damage == "garbage":  # a whole entry that holds something else
            store.write(path.stem, b"not what Numba wrote")
        else:
            path.write_bytes({
                "cut": whole[:middle], "empty": b"", "other": b"x" * 100,
                "byte": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            }[damage])  # fmt: skip
        if not wait:
            assert build.loaded(unit()) is None
            assert not path.exists()
            assert counts() == ({"damaged": 1} if damage == "garbage" else {})
            continue
        assert build.compiled(unit())(1) == 2
        assert jit.COUNTS["compiled"] == 1
    assert store.read(path.stem) is not None, "it is whole again; names in machine code differ each time"


def test_without_a_place_every_process_compiles_for_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    assert store.folder() is None
    assert build.compiled(unit())(1) == 2
    assert counts() == {"compiled": 1, "unkept": 1}
    assert (store.entries(), store.size(), store.clear()) == ([], 0, 0)
    cache.unlink()
    cache.mkdir()
    cache.chmod(0o777)  # others could put their code there
    assert store.folder() is None
    cache.chmod(0o755)
    assert store.folder() == cache
    forget()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert build.compiled(unit())(1) == 2
    assert counts() == {"compiled": 1, "unkept": 1}
    assert list(cache.iterdir()) == []


def test_what_a_killed_process_leaves_does_not_matter(cache: Path) -> None:
    """Killed between writing an entry and putting it in place, while it holds the lock."""
    code = (
        "import os, signal\nfrom pathlib import Path\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n" + CHILD
    )
    killed = child(unit().source, code=code)
    killed.communicate(timeout=LONG)
    assert killed.returncode == -9
    left = sorted(p.name for p in cache.iterdir())
    assert len(left) == 2
    assert all(name.startswith(".") for name in left)
    assert not build.is_compiled(unit())
    assert build.compiled(unit())(1) == 2
    for path in cache.glob(".*"):
        os.utime(path, (0, 0))
    store.evict()
    assert list(cache.glob(".*")) == []
    assert build.is_compiled(unit())


def test_those_used_least_recently_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, name in enumerate("abcd"):
        assert store.write(name, b"x" * 1000)
        os.utime(cache / f"{name}.kernel", (i + 1, i + 1))
    assert store.read("a") == b"x" * 1000  # used now
    one = store.entries()[0].bytes
    monkeypatch.setenv(store.LIMIT, str(3 * one))
    assert store.write("e", b"y" * 1000)
    assert {e.name for e in store.entries()} == {"a", "d", "e"}
    assert store.size() == 3 * one
    monkeypatch.setenv(store.LIMIT, str(one - 1))
    assert not store.write("f", b"z" * 1000)
    assert store.entries() == []
    monkeypatch.setenv(store.LIMIT, "many")
    with pytest.raises(UsageError):
        store.limit()
    monkeypatch.delenv(store.LIMIT)
    store.write("g", b"")
    assert store.clear() > 0
    assert list(cache.iterdir()) == []


def test_entries_are_not_all_looked_at_for_each(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes the longer the more there are: once, and again when so much was written that they may be too many."""
    looked: list[int] = []
    real = store.entries
    monkeypatch.setattr(store, "_SINCE", store._Since())

    def noted() -> list[store.Entry]:
        looked.append(1)
        return real()

    monkeypatch.setattr(store, "entries", noted)
    for number in range(20):
        assert store.write(str(number), b"x" * 1000)
    assert len(looked) == 1
    monkeypatch.setenv(store.LIMIT, str(16 * 4000))
    for number in range(20, 40):
        assert store.write(str(number), b"x" * 1000)
    assert 1 < len(looked) < 10
    for number in range(40, 80):
        assert store.write(str(number), b"x" * 1000)
    assert sum(e.bytes for e in real()) <= 16 * 4000 + 4000


def test_files_for_other_processes(tmp_path: Path) -> None:
    path = build.write_source(unit(), tmp_path)
    bad = tmp_path / "bad.py"
    bad.write_text(build.text_of(Unit(source=SOURCE.format("'a'"))))
    command = [sys.executable, "-m", "timelapse.kernels.compile", str(bad), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "bad.py: TypingError" in done.stderr
    found = build.loaded(unit())
    assert found is not None
    assert found(1) == 2
    assert counts() == {"loaded": 1}
    assert build.compile_file(path)


class Small(tl.Program):
    n: tl.Counter[int]

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.k] += 1


class Looking(Small):
    @tl.on(A)
    def look(self, e: A) -> None:
        if self.n.last(5)[e.k] > 3:
            self.n[e.k] -= 1


def test_programs_that_take_long_as_python_wait_sooner() -> None:
    assert choose.cold_events(Small()) == USUAL.cold_events
    assert choose.cold_events(Looking()) == USUAL.cold_events // USUAL.slower
    assert choose.cold_events(Looking(), KernelTuning(1000)) == USUAL.warm_events


def test_small_jobs_never_wait_for_the_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below `warm_events` nothing is even looked up; below `cold_events` only what is on disk runs compiled, unless
    the pass is one of several."""
    monkeypatch.setenv(choose.SWITCH, "auto")
    work = final_pass(analyse(Small))

    def kernel(events: int, times: int = 1) -> choose.SliceKernel:
        return choose.SliceKernel(Small(), work, {}, events, final=True, tuning=KernelTuning(times))

    for events in (0, USUAL.warm_events, USUAL.cold_events - 1):
        assert not kernel(events).compiled
    assert counts() == {}
    assert store.entries() == []
    assert not kernel(USUAL.cold_events // 3 - 1, 3).compiled
    assert kernel(USUAL.cold_events // 3, 3).compiled
    assert choose.cold_events(tuning=KernelTuning(1000)) == USUAL.warm_events
    assert choose.cold_events() == USUAL.cold_events
    assert kernel(USUAL.warm_events).compiled
    assert not kernel(USUAL.warm_events - 1).compiled
    made = jit.COUNTS["compiled"]
    assert made > 0
    forget()
    assert kernel(USUAL.warm_events).compiled
    assert counts() == {"loaded": 1}
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    forget()
    assert not kernel(USUAL.warm_events).compiled
    assert "compiled" not in counts()


def test_what_numba_refuses_runs_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Unit(source="SIGNATURE = (int64,)\n\n\ndef run(n):\n    return n + 'a'\n")
    with pytest.raises(build.NotCompiled, match="TypingError"):
        build.compiled(odd)
    monkeypatch.setenv(choose.SWITCH, "native")
    monkeypatch.setattr(choose, "lowered_pass", lambda *_, final: odd)
    assert not choose.SliceKernel(Small(), final_pass(analyse(Small)), {}, 0, final=True).compiled


def test_a_changed_compiler_means_other_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, the processor, Numba's settings, and the text of everything that is compiled in."""
    made = version.compiler_version.__wrapped__
    before = made()
    assert made() == before == version.compiler_version()
    with monkeypatch.context() as patch:
        patch.setenv("NUMBA_OPT", "1")
        assert made() != before
    with monkeypatch.context() as patch:
        patch.setattr(version, "version", lambda name: "0.1" if name == "llvmlite" else "0")
        assert made() != before
    with monkeypatch.context() as patch:
        real = pkgutil.get_data
        patch.setattr(
            pkgutil, "get_data",
            lambda package, name: (real(package, name) or b"") + (b" " if name == "primitives.py" else b""),
        )  # fmt: skip
        assert made() != before
    with monkeypatch.context() as patch:
        import llvmlite.binding as llvm

        patch.setattr(llvm, "get_host_cpu_name", lambda: "another")
        assert made() != before


def test_doctor_says_whether_they_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.compiled(unit())
    found = kernel_cache()
    assert found.status == "ok"
    assert "; 1 on disk, 0.0 of at most 1000 MB" in found.value
    assert str(cache) in found.value
    with monkeypatch.context() as patch:
        patch.setenv(store.LIMIT, "x")
        assert (kernel_cache().status, kernel_cache().hint) == ("warn", "set it to a number of bytes")
    cache.chmod(0o777)
    found = kernel_cache()
    assert found.status == "warn"
    assert "cannot be kept" in found.value


SECOND = """
import sys
import timelapse as tl
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.choose import lowered_pass
from timelapse.kernels.native import build
from timelapse.kernels.native.machine.jit import COUNTS


class Login(tl.Event):
    user: int
    address: bytes
    agent: str
    risk: float


class Odd(tl.Record, key="user"):
    user: int
    agent: str


class Logins(tl.Program):
    tried: tl.Counter[bytes]
    known: tl.Set[tuple[int, str]]
    first: tl.First[int, str | None]
    risk: tl.Min[str, float | None]
    mean: tl.Mean[int]

    @tl.on(Login)
    def judge(self, e):
        self.tried[e.address] += 1
        self.first.add(e.user, e.agent)
        self.risk.add(e.agent, e.risk)
        self.mean.add(e.user, 3)
        if (e.user, e.agent) not in self.known:
            self.known.add((e.user, e.agent))
            self.emit(Odd(user=e.user, agent=e.agent))
        if self.tried[e.address] > 4000:
            self.reject("too many")


if sys.argv[1:]:
    print(build.write_source(lowered_pass(Logins(), final_pass(analyse(Logins)), final=True), sys.argv[1]))
else:
    events = [
        Login(user=n % 1500, address=b"%d" % (n % 900), agent=f"a{n % 70}", risk=float(n % 11), ts=n)
        for n in range(6000)
    ]
    run = tl.replay(Logins, events, spark=False, cache=False, slices=1)
    print(run.passes, sorted(COUNTS.elements()))
"""


def test_what_passes_call_besides_is_compiled_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that finds its pass, because another process has compiled it meanwhile, compiles nothing at all."""
    script = tmp_path / "logins.py"
    few = ("first", "risk", "mean")  # each kind that is left out saves the compiler a second or two
    left_out = [] if DEPTH >= FULL else [text for name in few for text in (f"{name}: tl.", f"self.{name}.")]
    lines = [line for line in SECOND.splitlines() if not any(text in line for text in left_out)]
    script.write_text("\n".join(lines))
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setenv(choose.SWITCH, "native")

    def output(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    source = output(str(script), str(folder)).strip()
    output("-m", "timelapse.kernels.compile", "--remove", str(folder), source)
    assert not folder.exists()
    ran = output(str(script))
    assert "'final': 'compiled'" in ran
    assert "'compiled'" not in ran.split("}")[1]
    assert "'loaded'" in ran


CALLING = """SIGNATURE = (INTS, TABLE, TABLE, uint64, int64)


def run(spare, slots, base, i, width):
    return take(spare, slots, base, i, width) + {}
"""
CALLER = """
import json, sys
import numpy as np
from timelapse.kernels.native import build
from timelapse.kernels.native.machine import jit
from timelapse.kernels.native.lowering.unit import Unit
spare, slots, base = np.zeros(4, np.int64), np.ones((4, 4), np.int64), np.zeros((4, 4), np.int64)
answers = [int(build.compiled(Unit(source=s))(spare, slots, base, np.uint64(1), 1)) for s in sys.argv[1:]]
print(json.dumps([answers, {k: v for k, v in jit.COUNTS.items() if v}]))
"""


def copied(head: dict[str, Any]) -> list[str]:
    """The functions that a pass has for itself of those that it calls."""
    return [name for name in head["symbols"] if name.startswith("_ZN9timelapse")]


def parts(cache: Path, source: str) -> list[Path]:
    """The entries that hold what a pass calls."""
    payload = store.read(entry(Unit(source=source), cache).stem)
    assert payload is not None
    head, _, _ = objects._taken_apart(payload)
    assert not copied(head)
    return [cache / f"{part}.kernel" for part in head["parts"]]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, int]]:
    """What a process leaves that has compiled a pass and what it calls; what that gave, and what it counted."""
    folder = tmp_path_factory.mktemp("called")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMELAPSE_CACHE", str(folder))
        (answer,), counted = result(child(CALLING.format(1), code=CALLER))
    return folder, answer, counted


@pytest.fixture
def answer(called: tuple[Path, int, dict[str, int]], cache: Path) -> int:
    """Where it is all in this test's cache: what the pass gives."""
    folder, given, _ = called
    shutil.copytree(folder, cache.parent)
    return given


def test_passes_call_kept_functions_where_they_are(
    cache: Path, called: tuple[Path, int, dict[str, int]], answer: int
) -> None:
    """They do not hold a copy each, and a process that loads a pass loads what it calls."""
    source, other = CALLING.format(1), CALLING.format(2)
    assert called[2]["compiled"] > 1
    (part,) = parts(cache, source)
    assert part.is_file()
    assert result(child(source, code=CALLER)) == [[answer], {"loaded": 1}]
    assert result(child(source, other, code=CALLER)) == [[answer, answer + 1], {"loaded": 2, "compiled": 1}]
    assert parts(cache, other) == [part]


@pytest.mark.parametrize("how", ["gone", "damaged", "anew"])
def test_a_pass_whose_parts_are_not_there_is_compiled_again(cache: Path, how: str, answer: int) -> None:
    """Evicted, damaged, or compiled again since, by a process that named it otherwise."""
    source = CALLING.format(1)
    (part,) = parts(cache, source)
    if how == "anew":
        kept = store.read(part.stem)
        assert kept is not None
        store.write(part.stem, kept.replace(b"4take", b"4tkae"))
    elif how == "damaged":
        part.write_bytes(part.read_bytes()[:-1])
    else:
        part.unlink()
    found, counted = result(child(source, code=CALLER))
    assert found == [answer]
    assert counted["compiled"] >= 1
    assert counted["damaged"] >= 1
    found, counted = result(child(source, code=CALLER))
    assert found == [answer]
    assert counted == {"loaded": 1}


def test_a_pass_holds_what_is_not_kept(cache: Path) -> None:
    """A part that this process has, and the folder does not: another process could not load it."""
    source = CALLING.format(3)
    cleared = CALLER.replace(
        "answers =",
        f"from timelapse.kernels.native.machine import store\n"
        f"build.compiled(Unit(source={CALLING.format(4)!r}))\nstore.clear()\nanswers =",
    )
    (answer,), _ = result(child(source, code=cleared))
    payload = store.read(entry(Unit(source=source), cache).stem)
    assert payload is not None
    head, _, _ = objects._taken_apart(payload)
    assert head["parts"] == []
    assert copied(head)
    assert result(child(source, code=CALLER)) == [[answer], {"loaded": 1}]
