"""An explanation as a picture: events, states by level, outputs, and what decides what. Self-contained SVG."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from timelapse.explanation.layout import Item, Layout, lay_out
from timelapse.explanation.summary import advice_at, summary, time_text
from timelapse.explanation.text import clean, rewrite_text
from timelapse.plan.strategy import Strategy

if TYPE_CHECKING:
    from timelapse.explanation.model import Explanation, StateRow

_WIDTH = 1060.0
"""What is aimed at: shrunk to 800 pixels it can still be read."""
_MARGIN = 24.0
_TOP = 122.0
_PAD = 12.0
_CHAR = 7.45
"""Width of a character of a name."""
_SMALL = 6.2
"""Width of a character of what stands under a name."""
_LINE = 17.0

STYLE = """
.tlx{--bg:#ffffff;--ink:#1f2430;--soft:#667085;--line:#98a2b3;--faint:#c3cad6;--box:#f8fafc;--edge:#d5dbe5;
--scan:#0f9d76;--bykey:#2f7ed8;--iterate:#c98a04;--chain:#d8472b;--event:#6b5bd2;--output:#3a4256}
@media (prefers-color-scheme:dark){.tlx{--bg:#14171f;--ink:#e9ecf3;--soft:#98a2b5;--line:#6f7a90;--faint:#414a5e;
--box:#1d222d;--edge:#363e4f;--scan:#2fcf9d;--bykey:#62a8f5;--iterate:#eeb63a;--chain:#ff7a5c;--event:#a497ff;--output:#cfd6e6}}
.tlx text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink)}
.tlx .mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.tlx .page{fill:var(--bg)}
.tlx .title{font-size:20px;font-weight:650}
.tlx .soft{font-size:12.5px;fill:var(--soft)}
.tlx .head{font-size:11.5px;fill:var(--soft);letter-spacing:.06em}
.tlx .name{font-size:12.4px;font-weight:600}
.tlx .kind{font-size:10.2px;fill:var(--soft)}
.tlx .tag{font-size:10.4px;font-weight:650}
.tlx .box{fill:var(--box);stroke:var(--edge);stroke-width:1}
.tlx .group{fill:none;stroke:var(--chain);stroke-width:1.2;stroke-dasharray:5 4;opacity:.8}
.tlx .wire{fill:none;stroke:var(--line);stroke-width:1.5}
.tlx .feed{stroke:var(--faint);stroke-width:1.3}
.tlx .hit{fill:none;stroke:transparent;stroke-width:11}
.tlx .tip{fill:var(--line)}
.tlx .tip-feed{fill:var(--faint)}
.tlx .edge:hover .wire{stroke:var(--ink);stroke-width:2.2}
.tlx .scan{fill:var(--scan)}.tlx .by-key{fill:var(--bykey)}.tlx .iterate{fill:var(--iterate)}
.tlx .chain{fill:var(--chain)}.tlx .event{fill:var(--event)}.tlx .output{fill:var(--output)}
.tlx .loop{fill:none;stroke:var(--chain);stroke-width:1.5}
.tlx .tip-loop{fill:var(--chain)}
"""

_LEGEND = {
    Strategy.SCAN: "scan: all slices at once",
    Strategy.BY_KEY: "by key: all keys at once",
    Strategy.ITERATE: "iterate: guess and repair",
    Strategy.CHAIN: "chain: slice after slice",
}


@dataclass(frozen=True)
class _Box:
    """One labelled box. `lines` are the name's lines; `css` its colour; `tag` the strategy."""

    name: str
    lines: tuple[str, ...]
    kind: str
    css: str
    tag: str
    tip: str
    loop: bool = False
    stacked: bool = False
    """Whether the strategy stands under the kind, not beside it."""

    @property
    def height(self) -> float:
        extra = 15 if self.kind else -4
        return 18 + _LINE * len(self.lines) + extra + (15 if self.stacked else 0)


@dataclass(frozen=True)
class _Block:
    """Boxes that are placed together: one, or the states of a cycle."""

    name: str
    column: int
    boxes: tuple[_Box, ...]

    @property
    def height(self) -> float:
        inner = sum(b.height for b in self.boxes) + 10 * (len(self.boxes) - 1)
        return inner + (38 if len(self.boxes) > 1 else 0)


def as_svg(e: Explanation, took: str = "") -> str:
    """The picture of an explanation. `took`: what the replay took, where it is over; else what it is predicted to take is said."""
    return _Picture(e, took).svg()


class _Picture:
    def __init__(self, e: Explanation, took: str) -> None:
        self.e = e
        self.took = took
        self.advice = advice_at(e)
        levels = {stage.index + 1: stage.level for stage in e.plan.stages}
        self.level = {row.state: levels[row.stage] for row in e.states}
        self.last = 1 + max(self.level.values(), default=0)
        columns = self.last + 1
        names = (*e.events, *(r.state for r in e.states), *(o.record for o in e.outputs))
        wish = max([len(n) * _CHAR + 8 for n in names], default=0.0)
        wish = max([wish, *(len(r.kind) * _SMALL + _tag_width(r.strategy) for r in e.states)]) + 2 * _PAD
        room = (_WIDTH - 2 * _MARGIN) / columns
        self.width = min(max(104.0, wish), 190.0, max(118.0, room * 0.75))
        self.stacked = wish > self.width + 2 * _SMALL
        self.gap = max(46.0, min(84.0, room - self.width))
        self.blocks = list(self._blocks())
        self.block_of = {box.name: block for block in self.blocks for box in block.boxes}
        self.edges = self._edges()
        pairs = dict.fromkeys((self.block_of[a].name, self.block_of[b].name) for a, b in self.edges)
        self.layout: Layout = lay_out([(b.name, b.column, b.height) for b in self.blocks], list(pairs))
        self.total_width = 2 * _MARGIN + columns * self.width + (columns - 1) * self.gap
        self.foot = _TOP + self.layout.height + 34
        self.places = {box.name: place for block in self.blocks for box, place in self._boxes_at(block)}

    # --- what is shown ------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[_Block]:
        e = self.e
        for name, n in e.events.items():
            count = f"{n:,}" if n is not None else ""
            yield _Block(
                f"event {name}", 0, (_Box(f"event {name}", self._lines(name), count, "event", "", name),)
            )
        done: set[str] = set()
        for row in sorted(e.states, key=lambda r: r.stage):
            if row.state in done:
                continue
            members = [r for r in e.states if r.state in (row.component or (row.state,))]
            done.update(r.state for r in members)
            yield _Block(row.state, self.level[row.state], tuple(self._state(r) for r in members))
        for output in e.outputs:
            name = f"output {output.record}"
            tip = f"{output.record}: {', '.join(output.places)}"
            yield _Block(name, self.last, (_Box(name, self._lines(output.record), "", "output", "", tip),))

    def _state(self, row: StateRow) -> _Box:
        tip = [f"{row.state}: {row.kind}", f"{row.strategy}, stage {row.stage}: {row.because} ({row.place})"]
        tip += [f"<- {d.source}: {d.via}, {d.place}" for d in row.depends_on]
        if row.rewrite is not None and len(self.advice.get(row.state, ())) == 1:
            tip.append(f"rewrite: {row.rewrite}")
        loop = any(d.source == row.state for d in row.depends_on)
        css = row.strategy.replace(" ", "-")
        return _Box(
            row.state, self._lines(row.state), row.kind, css, row.strategy, "\n".join(tip), loop, self.stacked
        )

    def _lines(self, name: str) -> tuple[str, ...]:
        """A name on one line, or broken after underscores or before capitals; what is still too long is cut."""
        room = int((self.width - 2 * _PAD) / _CHAR)
        if len(name) <= room:
            return (name,)
        parts = name.replace("_", "_\0").split("\0")
        if len(parts) == 1:
            parts = "".join(f"\0{c}" if c.isupper() else c for c in name).strip("\0").split("\0")
        lines = [""]
        for part in parts:
            if lines[-1] and len(lines[-1]) + len(part) > room:
                lines.append("")
            lines[-1] += part
        if len(lines) > 3:
            lines = [*lines[:2], lines[2] + "..."]
        return tuple(line if len(line) <= room else line[: room - 1] + "…" for line in lines)

    def _edges(self) -> dict[tuple[str, str], list[str]]:
        """(from box, to box) -> lines of the tooltip. What an event does through a shown state is not repeated."""
        rows = {row.state: row for row in self.e.states}
        behind: dict[str, set[str]] = {}

        def reach(name: str) -> set[str]:
            if name not in behind:
                behind[name] = set()
                for d in rows[name].depends_on:
                    behind[name] |= {d.source} | reach(d.source)
            return behind[name]

        edges: dict[tuple[str, str], list[str]] = {}
        for row in sorted(self.e.states, key=lambda r: r.stage):
            own = set(row.component or (row.state,))
            fed = {name for s in reach(row.state) - own for name in rows[s].written_by}
            if self.block_of[row.state].boxes[0].name == row.state or not row.component:
                for name in row.written_by:
                    if name in self.e.events and name not in fed:
                        edges[f"event {name}", row.state] = [f"{name} writes {row.state}"]
            for d in row.depends_on:
                if d.source not in own:
                    edges.setdefault((d.source, row.state), []).append(
                        f"{d.source} decides {row.state}: {d.via}, {d.place}"
                    )
        for output in self.e.outputs:
            for name in output.states:
                edges[name, f"output {output.record}"] = [f"{name} decides {output.record}"]
            if not output.states:
                for name in output.events:
                    edges[f"event {name}", f"output {output.record}"] = [f"{name} puts out {output.record}"]
        return edges

    # --- where ----------------------------------------------------------------------------------------

    def _x(self, column: int) -> float:
        return _MARGIN + column * (self.width + self.gap)

    def _boxes_at(self, block: _Block) -> Iterator[tuple[_Box, float]]:
        """The top of each box of a block."""
        item = self.layout.item(block.name)
        at = _TOP + item.top + (26 if len(block.boxes) > 1 else 0)
        for box in block.boxes:
            yield box, at
            at += box.height + 10

    # --- drawing ----------------------------------------------------------------------------------------

    def svg(self) -> str:
        height = self.foot + 44
        width = max(self.total_width, 560.0)
        title = f"{self.e.program}: events, states and outputs"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tlx" viewBox="0 0 {_n(width)} {_n(height)}" '
            f'width="{_n(width)}" style="max-width:100%;height:auto" role="img" aria-label="{_e(title)}">',
            f"<style>{STYLE}</style>",
            _MARKERS,
            f'<rect class="page" width="{_n(width)}" height="{_n(height)}" rx="10"/>',
            *self._header(width),
            *self._wires(),
            *(part for block in self.blocks for part in self._draw(block)),
            *self._legend(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _header(self, width: float) -> Iterator[str]:
        e = self.e
        doc = e.doc.splitlines()[0] if e.doc else ""
        mode = f"{e.stages} pass{'es' if e.stages != 1 else ''} and the final one"
        if e.mode == "chain":
            mode = "slice after slice"
        elif e.mode == "by key":
            mode = "one pass, events shared out by key"
        yield _text(_MARGIN, 36, _cut(e.program, int((width - 260) / 12)), "title")
        yield (
            f'<text class="soft" x="{_n(width - _MARGIN)}" y="36" text-anchor="end">{_e(mode)}'
            f"<title>{_e(e.reason)}</title></text>"
        )
        yield _text(_MARGIN, 57, _cut(doc, int((width - 2 * _MARGIN) / 6.4)), "soft", doc)
        line = f"{self.took or time_text(e).partition(':')[0]}{f'; {advice}' if (advice := dict(summary(e)).get('advice')) else ''}"
        yield _text(_MARGIN, 76, _cut(line, int((width - 2 * _MARGIN) / 6.4)), "soft", line)
        stages: dict[int, list[int]] = {}
        for stage in e.plan.stages:
            stages.setdefault(stage.level, []).append(stage.index + 1)
        heads = {0: "EVENTS", self.last: "OUTPUTS" if e.outputs else ""}
        for level, found in stages.items():
            heads[level] = f"STAGE {found[0]}" if len(found) == 1 else f"STAGES {', '.join(map(str, found))}"
        for column, head in heads.items():
            yield _text(self._x(column) + 1, _TOP - 16, head, "head")

    def _wires(self) -> Iterator[str]:
        ports = self._ports()
        for (source, target), tips in self.edges.items():
            chain = self.layout.chains[self.block_of[source].name, self.block_of[target].name]
            points = [(self._x(chain[0].column) + self.width, ports[source, target, "out"])]
            for lane in chain[1:-1]:
                points.append((self._x(lane.column), _TOP + lane.y))
                points.append((self._x(lane.column) + self.width, _TOP + lane.y))
            points.append((self._x(chain[-1].column) - 7, ports[source, target, "in"]))
            path = _curve(points)
            feed = source.startswith("event ")
            yield (
                f'<g class="edge"><path class="wire{" feed" if feed else ""}" d="{path}" '
                f'marker-end="url(#tlx-{"feed" if feed else "tip"})"/>'
                f'<path class="hit" d="{path}"><title>{_e(chr(10).join(tips))}</title></path></g>'
            )

    def _ports(self) -> dict[tuple[str, str, str], float]:
        """Where on a box's side each edge ends: spread out, in the order of where they lead."""
        ports: dict[tuple[str, str, str], float] = {}
        heights = {box.name: box.height for block in self.blocks for box in block.boxes}
        for side in ("out", "in"):
            by_box: dict[str, list[tuple[float, tuple[str, str]]]] = {}
            for edge in self.edges:
                chain = self.layout.chains[self.block_of[edge[0]].name, self.block_of[edge[1]].name]
                near: Item = chain[1] if side == "out" else chain[-2]
                by_box.setdefault(edge[0] if side == "out" else edge[1], []).append((near.y, edge))
            for name, found in by_box.items():
                found.sort(key=lambda item: item[0])
                step = min(12.0, (heights[name] - 14) / len(found))
                middle = self.places[name] + heights[name] / 2
                for index, (_, edge) in enumerate(found):
                    ports[(*edge, side)] = middle + (index - (len(found) - 1) / 2) * step
        return ports

    def _draw(self, block: _Block) -> Iterator[str]:
        x = self._x(block.column)
        if len(block.boxes) > 1:
            item = self.layout.item(block.name)
            yield (
                f'<rect class="group" x="{_n(x - 9)}" y="{_n(_TOP + item.top)}" width="{_n(self.width + 18)}" '
                f'height="{_n(item.height)}" rx="12"/>'
            )
            told = [
                row
                for box in block.boxes
                for row in self.e.states
                if row.state == box.name and row.state in self.advice
            ]
            tips = [
                rewrite_text(row, self.advice[row.state]) for row in told if len(self.advice[row.state]) > 1
            ]
            yield _text(x, _TOP + item.top + 17, "depend on each other", "kind", "\n".join(tips))
        for box, top in self._boxes_at(block):
            yield f'<g><title>{_e(box.tip)}</title><rect class="box" x="{_n(x)}" y="{_n(top)}" width="{_n(self.width)}" height="{_n(box.height)}" rx="8"/>'
            yield f'<rect class="{box.css}" x="{_n(x)}" y="{_n(top + 8)}" width="3.5" height="{_n(box.height - 16)}" rx="1.75"/>'
            at = top + 21
            for line in box.lines:
                yield _text(x + _PAD, at, line, "name mono")
                at += _LINE
            if box.kind:
                beside = 0.0 if box.stacked else _tag_width(box.tag)
                room = int((self.width - 2 * _PAD - beside + 1) / _SMALL)
                yield _text(x + _PAD, at - 1, _kind(box.kind, room), "kind mono")
            if box.tag:
                tag_x, anchor = (x + _PAD, "start") if box.stacked else (x + self.width - _PAD + 2, "end")
                yield (
                    f'<text class="tag {box.css}" x="{_n(tag_x)}" y="{_n(at - 1 + (15 if box.stacked else 0))}" '
                    f'text-anchor="{anchor}">{_e(box.tag)}</text>'
                )
            if box.loop:
                cx, cy = x + self.width - 13, top + 13
                yield (
                    f'<path class="loop" d="M{_n(cx - 4)} {_n(cy - 3.2)} A5 5 0 1 1 {_n(cx - 5)} {_n(cy + 1.5)}" '
                    f'marker-end="url(#tlx-loop)"/>'
                )
            yield "</g>"

    def _legend(self) -> Iterator[str]:
        x, y = _MARGIN, self.foot + 14
        used = [s for s in Strategy if any(r.strategy == s for r in self.e.states)]
        for strategy in used:
            css = strategy.value.replace(" ", "-")
            yield f'<rect class="{css}" x="{_n(x)}" y="{_n(y - 9)}" width="10" height="10" rx="3"/>'
            yield _text(x + 16, y, _LEGEND[strategy], "soft")
            x += 16 + len(_LEGEND[strategy]) * 6.4 + 22
        if any(d.source == r.state for r in self.e.states for d in r.depends_on):
            yield f'<path class="loop" d="M{_n(x + 1)} {_n(y - 7.2)} A5 5 0 1 1 {_n(x)} {_n(y - 2.5)}" marker-end="url(#tlx-loop)"/>'
            yield _text(x + 17, y, "depends on itself", "soft")


_MARKERS = (
    "<defs>"
    + "".join(
        f'<marker id="tlx-{name}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="{size}" markerHeight="{size}" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{css}" d="M0 0.6 L8 4 L0 7.4 Z"/></marker>'
        for name, css, size in (("tip", "tip", 8), ("feed", "tip-feed", 8), ("loop", "tip-loop", 5))
    )
    + "</defs>"
)


def _curve(points: list[tuple[float, float]]) -> str:
    """A line through points that leaves and enters each one horizontally."""
    path = f"M{_n(points[0][0])} {_n(points[0][1])}"
    for (x, y), (u, v) in itertools.pairwise(points):
        if y == v:
            path += f" L{_n(u)} {_n(v)}"
        else:
            middle = (x + u) / 2
            path += f" C{_n(middle)} {_n(y)} {_n(middle)} {_n(v)} {_n(u)} {_n(v)}"
    return path


def _text(x: float, y: float, value: str, css: str, tip: str = "") -> str:
    title = f"<title>{_e(tip)}</title>" if tip and tip != value else ""
    return f'<text class="{css}" x="{_n(x)}" y="{_n(y)}">{title}{_e(value)}</text>'


def _kind(kind: str, room: int) -> str:
    """A kind's text, shortened: `Set[tuple[int, str]]`, `Set[(int, str)]`, `Set`."""
    short = re.sub(r"tuple\[([^\[\]]*)\]", r"(\1)", kind)
    return next((k for k in (kind, short) if len(k) <= room), _cut(kind.split("[", maxsplit=1)[0], room))


def _tag_width(tag: str) -> float:
    return len(tag) * 6.0 + 10 if tag else 0.0


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _e(text: str) -> str:
    return escape("\n".join(clean(line) for line in text.split("\n")))
