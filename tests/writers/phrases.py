"""How random programs declare states, and what they say to all kinds but the first six."""

from __future__ import annotations

from typing import NamedTuple

KINDS: dict[str, str] = {
    "counter": "tl.Counter[int]",
    "total": "tl.Counter",
    "set": "tl.Set[int]",
    "pairs": "tl.Set[tuple[int, int]]",
    "value": "tl.Value[int, int] = tl.state(default=0)",
    "optional": "tl.Value[int, int | None]",
    "single": "tl.Value[int] = tl.state(default=1)",
    "max": "tl.Max[int, int] = tl.state(default=0)",
    "min": "tl.Min[int, int] = tl.state(default=5)",
    "first": "tl.First[int, int] = tl.state(default=-1)",
}


class Phrases(NamedTuple):
    """How a kind is declared, read (as an int), written and asked for a key.

    `{x}` stands for the state, `{key}` for a key (a small int), `{pair}` for a pair of them, `{v}` for a small int.
    """

    declared: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    key: str = "{key}"
    """What stands before `in`; empty: it cannot be asked."""


FURTHER: dict[str, Phrases] = {
    "sum": Phrases(
        "tl.Sum[int, Money]",
        ("int({x}[{key}])", "(1 if {x}[{key}] > e.m else 0)", "(2 if {x}[{key}] == 0 else 1)", "(1 if abs({x}[{key}]) < {v} else 0)"),
        ("{x}[{key}] += e.m", "{x}[{key}] -= e.m * {v}", "{x}[{key}] = e.m + {v}", "{x}.add({key}, min(e.m, {v}))", "del {x}[{key}]",
         "{x}[{key}] = {x}[{key}] + e.m"),
    ),
    "money": Phrases(
        "tl.Value[int, Money] = tl.state(default=Decimal('0.50'))",
        ("(1 if {x}[{key}] < e.m else 0)", "int({x}[{key}] * 3)", "(3 if -{x}[{key}] != FEE else 0)"),
        ("{x}[{key}] += e.m", "{x}[{key}] = e.m - FEE", "{x}[{key}] = max({x}[{key}], e.m)", "{x}[{key}] = {v}", "{x}.setdefault({key}, e.m)"),
    ),
    "most_money": Phrases(
        "tl.Max[Money, Money | None]",
        ("(1 if {x}[e.m] is None else 2)", "(1 if ({x}[e.m] or FEE) > 1 else 2)"),
        ("{x}.add(e.m, e.m + {v})", "{x}.add(e.m, FEE * 2)", "del {x}[e.m]"),
        "e.m",
    ),
    "mean_money": Phrases(
        "tl.Mean[int, Money]",
        ("(1 if {x}.sum({key}) > FEE else 0)", "{x}.count({key})", "int({x}[{key}] or 0)"),
        ("{x}.add({key}, e.m)", "{x}.remove({key}, FEE)", "{x}.add({key}, {v})"),
    ),
    "setof": Phrases(
        "tl.SetOf[int, int]",
        ("len({x}[{key}])", "{x}.count({key})", "(1 if ({key}, 1) in {x} else 0)", "sum({x}[{key}])", "len({x}.items())"),
        ("{x}.add({key}, {v})", "{x}.add({key}, {v} % 3)", "{x}.discard({key}, {v} % 3)", "{x}.add(member={v}, key=1)",
         "{x}.add(key={key}, member=2)", "del {x}[{key}]"),
        "({key}, 1)",
    ),
    "pairs_of": Phrases(
        "tl.SetOf[tuple[int, int], str]",
        ("len({x}[{pair}])", "(1 if ({pair}, 'x') in {x} else 0)"),
        ("{x}.add({pair}, e.s)", "{x}.discard({pair}, 'x')", "{x}.discard({pair}, e.s)"),
        "({pair}, e.s)",
    ),
    "mapof": Phrases(
        "tl.MapOf[int, int, int] = tl.state(default=1)",
        ("{x}[{key}, 1]", "{x}.get(({key}, 2), 0)", "{x}.count({key})", "sum(v for _, v in {x}.fields({key}))", "{x}[{pair}]"),
        ("{x}[{key}, 1] = {v}", "{x}[{pair}] += {v}", "{x}[{key}, {v} % 3] += 1", "del {x}[{key}, 1]", "{x}.clear({key})",
         "{x}.setdefault(({key}, 2), {v})", "{x}.pop(({key}, 1))", "{x}.set(({key}, {v} % 3), {v})", "{x}.discard(({key}, {v} % 3))", "{x}[{key}, 2] = max({x}[{key}, 2], {v})"),
        "({key}, 1)",
    ),
    "last": Phrases(
        "tl.Last[int, int] = tl.state(default=-1)",
        ("{x}[{key}]", "{x}.get({key}, 3)", "(1 if {key} in {x} else 0)", "len({x}.items())"),
        ("{x}.add({key}, {v})", "{x}.add({key}, {v})", "{x}.add({key}, e.b)", "{x}.add(value={v}, key=1)"),
    ),
    "mean": Phrases(
        "tl.Mean[int] = tl.state(default=0.0)",
        ("int({x}[{key}])", "int({x}.get({key}, 2.0))", "{x}.sum({key})", "{x}.count({key})"),
        ("{x}.add({key}, {v})", "{x}.add({key}, 2)", "{x}.remove({key}, {v})", "del {x}[{key}]"),
    ),
    "listof": Phrases(
        "tl.ListOf[int, int] = tl.state(last=3)",
        ("sum({x}[{key}])", "len({x}.tail({key}, 2))", "{x}.count({key})", "({x}[{key}] or (0,))[-1]"),
        ("{x}.append({key}, {v})", "{x}.append({key}, {v})", "{x}.append(value={v}, key=1)", "{x}.pop({key})", "del {x}[{key}]"),
    ),
    "recent": Phrases(
        "tl.Recent[int] = tl.state(last=3)",
        ("{x}.count({key})", "{x}.sum({key})", "int({x}.mean({key}, 2.0))", "({x}.least({key}) or 0)", "{x}.largest({key}, 3)",
         "len({x}.items())", "int({x}.mean(default=1.5, key={key}))"),
        ("{x}.add({key}, {v})", "{x}.add({key}, {v})", "{x}.add({key}, e.b)", "{x}.add(value={v}, key=1)", "del {x}[{key}]"),
    ),
    "recent_floats": Phrases(
        "tl.Recent[int, float] = tl.state(last=2)",
        ("int({x}.sum({key}))", "int({x}.mean({key}, 2.0))", "int({x}.least({key}, 0.5))", "(1 if {x}.largest({key}) is None else 2)"),
        ("{x}.add({key}, {v})", "{x}.add({key}, 0.1 * {v})", "{x}.add({key}, -0.5)"),
    ),
    "recent_money": Phrases(
        "tl.Recent[int, Money] = tl.state(last=4)",
        ("(1 if {x}.sum({key}) > FEE else 0)", "int({x}.mean({key}, 2.0))", "(1 if {x}.least({key}, FEE) < e.m else 0)", "int({x}.largest({key}, FEE))"),
        ("{x}.add({key}, e.m)", "{x}.add({key}, {v})", "{x}.add({key}, e.m + FEE)"),
    ),
    "queue": Phrases(
        "tl.ListOf[int]",
        ("sum({x}.tail(2))", "{x}.count()", "len({x}.get())"),
        ("{x}.append({v})", "{x}.append({v})", "{x}.pop()"),
        "",
    ),
    "smoothed": Phrases(
        "tl.Smoothed[int] = tl.state(alpha=0.25, default=0.0)",
        ("int({x}[{key}])", "int({x}.get({key}, 3.0))"),
        ("{x}.add({key}, {v})", "{x}.add({key}, 0.1 * {v})", "del {x}[{key}]"),
    ),
    "smoothed_by_time": Phrases(
        "tl.Smoothed[int] = tl.state(half_life=3, default=0.0)",
        ("int({x}[{key}])",),
        ("{x}.add({key}, {v})", "{x}.add({key}, 0.1 * {v})"),
    ),
    "decayed": Phrases(
        "tl.Decayed[int] = tl.state(half_life=2)",
        ("int({x}[{key}])", "len({x}.top(2))", "int({x}.get({key}))"),
        ("{x}.add({key}, {v})", "{x}.add({key}, 1)", "del {x}[{key}]"),
    ),
    "distinct": Phrases(
        "tl.Distinct[int, int] = tl.state(size=32)",
        ("int({x}[{key}])", "int({x}.get({key}))", "int({x}.bounds({key})[1])", "len({x}.items())"),
        ("{x}.add({key}, {v})", "{x}.add({key}, {v} * 3)", "{x}.add(member={v}, key=1)", "del {x}[{key}]"),
    ),
    "quantiles": Phrases(
        "tl.Quantiles[int] = tl.state(error=0.1, default=0.0)",
        ("int({x}.quantile({key}, 0.5))", "int({x}.quantile({key}, 1))", "{x}.count({key})"),
        ("{x}.add({key}, {v})", "{x}.add({key}, 0.1 * {v})", "{x}.remove({key}, {v})", "del {x}[{key}]"),
    ),
    "frequent": Phrases(
        "tl.Frequent[int, int] = tl.state(size=8)",
        ("{x}.count({key}, 1)", "{x}.total({key})", "sum(n for _, n in {x}.top({key}, 2))"),
        ("{x}.add({key}, {v})", "{x}.add({key}, {v} % 3, 2)", "{x}.add(n=3, member={v}, key=1)", "del {x}[{key}]"),
    ),
}  # fmt: skip
