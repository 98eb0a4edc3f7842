"""What is written in other instructions than Numba's: how Python calls functions, how they call each other, and elements of arrays.
All as with Numba's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pytest

from timelapse.kernels.native.machine import inference
from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.machine.passing import SURE
from timelapse.kernels.native.machine.pipeline import FlatPipeline, Pipeline

types: Any = nb.types
READ_ONLY = types.Array(types.boolean, 1, "C", readonly=True)
STRIDED = types.Array(types.float64, 2, "A")
SIGNATURE = (
    nb.int64, nb.uint64, nb.float64, nb.boolean, nb.int8[::1], nb.int64[:, ::1], READ_ONLY, STRIDED,
)  # fmt: skip


@pytest.fixture(params=["ours", "Numba's"])
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the function is made here; else by Numba, as with a version that this was not tried with."""
    if request.param != "ours":
        monkeypatch.setattr(inference, "_TRIED", ("no version",))
    return bool(request.param == "ours")


def compiled(function: Any, *signature: Any) -> Any:
    """What Python calls for a signature, without what decides which signature is meant."""
    made: Any = nb.njit(
        pipeline_class=FlatPipeline, nogil=True, error_model="numpy", no_cfunc_wrapper=True, _nrt=False
    )(function)
    made.compile(signature)
    return made.overloads[signature].entry_point


def arguments() -> list[Any]:
    flags = np.array([True, False, True])
    flags.flags.writeable = False
    return [
        -5, 2**64 - 1, -0.25, True, np.array([3, -4], np.int8), np.arange(6).reshape(3, 2), flags,
        np.arange(12.0).reshape(3, 4)[::2, ::-2],
    ]  # fmt: skip


TOLD = float(-5 + 15 - 4000 + 300 - 0.25 + 11 * 0.5 + 1 * 0.125 + 2)


def told(word, unsigned, number, flag, small, table, flags, strided):  # type: ignore[no-untyped-def]
    table[1, 1] += word
    whole = word + np.int64(unsigned >> np.uint64(60)) + small[1] * 1000 + flags.shape[0] * 100
    return whole + number + strided[1, 0] * 0.5 + strided[0, 1] * 0.125 + (2 if flag and flags[2] else 0)


def test_every_kind_of_argument(own: bool) -> None:
    """Words, unsigned ones, floats, flags; arrays of bytes, of two dimensions, that may not be written to, with strides."""
    given = arguments()
    found = compiled(told, *SIGNATURE)(*given)
    assert given[5].tolist() == [[0, 1], [2, -2], [4, 5]]
    assert repr(found) == repr(TOLD)


def test_none_and_nothing(own: bool) -> None:
    assert compiled(lambda: None)() is None
    assert compiled(lambda: 7)() == 7
    assert compiled(lambda n: n > 3, nb.int64)(4) is True


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, "five", ValueError),
        (0, 2**70, OverflowError),
        (1, -1, OverflowError),
        (2, "x", TypeError),
        (4, np.zeros(2, np.int16), TypeError),
        (5, "no array", TypeError),
        (5, None, TypeError),
        (None, None, TypeError),
    ],
)
def test_what_is_something_else_is_refused(
    own: bool, place: int | None, value: Any, error: type[Exception]
) -> None:
    """With the error that Numba's own way raises. Nothing has run."""
    given = arguments()
    table = given[5]
    if place is None:
        given.pop()
    else:
        given[place] = value
    function = compiled(told, *SIGNATURE)
    with pytest.raises(error):
        function(*given)
    assert table.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_what_a_function_raises(own: bool) -> None:
    def fails(n):  # type: ignore[no-untyped-def]
        if n > 1:
            raise IndexError("too many")
        return n

    function = compiled(fails, nb.int64)
    assert function(1) == 1
    with pytest.raises(IndexError, match="too many"):
        function(2)


def test_it_is_written_in_a_loop() -> None:
    """Its length hardly grows with the arguments, which is what it is for."""

    def size(tables: int) -> int:
        names = ", ".join(f"t{n}" for n in range(tables))
        space: dict[str, Any] = {}
        exec(f"def f({names}):\n    return t0[0, 0]\n", space)
        made: Any = nb.njit(pipeline_class=FlatPipeline, nogil=True, _nrt=False)(space["f"])
        made.compile((nb.int64[:, ::1],) * tables)
        (found,) = made.inspect_llvm().values()
        head, _, rest = found.partition("define ptr @_ZN7cpython")
        assert rest, head[:200]
        text: str = rest.partition("\n}\n")[0]
        return text.count("label")

    assert size(40) == size(2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "caller", ["a pass", "a function with SSA", "a function that makes arrays", "anybody's"]
)
def test_functions_call_each_other_with_arrays(own: bool, caller: str, cache: None) -> None:
    """Whoever calls: the function is told the same. What is handed over of an array is enough for all that can be asked of it."""

    def asked(word, unsigned, number, flag, small, table, flags, strided):  # type: ignore[no-untyped-def]
        found = (
            len(small) + len(table) * 10 + table.size * 100 + table.strides[0] + table.itemsize + flags.nbytes
        )
        return (
            found
            + table.shape[1] * 1000
            + strided.strides[0]
            + strided.shape[1]
            + table[1][0]
            + table[1:][0, 1]
        )

    first, second = primitive()(told), primitive()(asked)

    def calls(a, b, c, d, e, f, g, h):  # type: ignore[no-untyped-def]
        return first(a, b, c, d, e, f, g, h), second(a, b, c, d, e, f, g, h)

    options: dict[str, Any] = {
        "a pass": {"pipeline_class": FlatPipeline, "_nrt": False},
        "a function with SSA": {"pipeline_class": Pipeline, "_nrt": False},
        "a function that makes arrays": {"pipeline_class": Pipeline},
        "anybody's": {},
    }
    made: Any = nb.njit(error_model="numpy", **options[caller])(calls)
    made.compile(SIGNATURE)
    given, meant = arguments(), arguments()
    meant[5][1, 1] -= 5
    assert made(*given) == (TOLD, asked(*meant))  # type: ignore[no-untyped-call]
    assert given[5].tolist() == meant[5].tolist()


def test_errors_come_through_calls(own: bool, cache: None) -> None:
    """And what cannot fail is known not to."""

    @primitive()
    def checked(table, n):  # type: ignore[no-untyped-def]
        if n >= table.shape[0]:
            raise IndexError("too many")
        table[n, 0] += 1
        return n

    @primitive()
    def counted(table, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            table[i, 1] += 1

    @primitive()
    def both(table, n):  # type: ignore[no-untyped-def]
        counted(table, n)
        return checked(table, n) + 1

    table = np.zeros((3, 2), np.int64)
    function = compiled(lambda t, n: both(t, n) * 2, nb.int64[:, ::1], nb.int64)
    assert function(table, 2) == 6
    with pytest.raises(IndexError, match="too many"):
        function(table, 3)
    assert table.tolist() == [[0, 2], [0, 2], [1, 1]]
    names = [next(iter(f.overloads.values())).fndesc.mangled_name for f in (checked, counted, both)]
    assert [name in SURE for name in names] == [False, own, False]


def test_an_array_is_handed_over_as_an_address_and_a_shape() -> None:
    def f(table, column, strided):  # type: ignore[no-untyped-def]
        return table[0, 0] + column[0]

    made: Any = nb.njit(pipeline_class=FlatPipeline, _nrt=False)(f)
    made.compile((nb.int64[:, ::1], nb.float64[::1], STRIDED))
    (found,) = made.inspect_llvm().values()
    head = next(line for line in found.splitlines() if line.startswith("define") and "cpython" not in line)
    assert head.count("%") == 2 + 3 + 2 + 9


def elements(table, column, flags, strided, small, i, u):  # type: ignore[no-untyped-def]
    """Elements by signed, unsigned and literal indices, from the end too; rows; arrays whose elements lie apart."""
    found = table[i, 1] * 3 + table[-1, i] * 5 + table[u, -2] * 7 + table[i][u] * 11 + table[2, 0] * 13
    found += column[i] * 17 + column[-1] * 19 + column[u] * 23 + column[0] * 29 + small[u] * 31
    table[i, u] = small[0]
    table[-3, 1] = column[1] + 1
    table[u, 0] += 1
    column[-i - 1] = found
    column[u] = 2.75 if flags[i] else 1.25
    small[-1] = 300 + i
    flags[u] = not flags[u]
    flags[-2] = i
    strided[i, -1] = strided[-2, i] + 0.5
    return found


@pytest.mark.parametrize("i", [0, 1, -1, -2])
@pytest.mark.parametrize("u", [0, 1])
def test_elements_of_arrays(own: bool, i: int, u: int) -> None:
    """As NumPy reads and writes them."""
    signature = (
        nb.int64[:, ::1], nb.int64[::1], nb.boolean[::1], STRIDED, nb.int8[::1], nb.int64, nb.uint64,
    )  # fmt: skip

    def given() -> list[Any]:
        return [
            np.arange(6).reshape(3, 2) * 2**40, np.array([3, 5, -7]), np.array([True, False, True]),
            np.arange(12.0).reshape(3, 4)[::2, ::-2], np.array([100, -100], np.int8),
        ]  # fmt: skip

    ours, meant = given(), given()
    as_python: Any = elements
    found = compiled(elements, *signature)(*ours, i, u)
    with np.errstate(over="ignore"):
        meant[4] = meant[4].astype(np.int64)
        answer = as_python(*meant, i, u)
        meant[4] = meant[4].astype(np.int8)
    assert found == answer
    for one, other in zip(ours, meant, strict=True):
        assert one.tolist() == other.tolist()
