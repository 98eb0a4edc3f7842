"""What plots return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timelapse.store.parts import write_part
from timelapse.store.places import local_path

STYLE = """
.tlc{color:inherit;--c1:#2f6fdf;--c2:#0f9d76;--c3:#c98a04;--c4:#9a4fd0;--c5:#0b93b5;--c6:#8a94a6;
--new:#2f6fdf;--gone:#d8572b;--changed:#b08a1e;--rejected:#8a94a6}
@media screen and (prefers-color-scheme:dark){.tlc{--c1:#5f9bff;--c2:#22b98a;--c3:#dba52c;--c4:#b87af0;--c5:#2fb0d0;
--c6:#8f9bb0;--new:#5f9bff;--gone:#f5784e;--changed:#cfa63a;--rejected:#8f9bb0}}
.tlc text{font:11px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
fill:currentColor;opacity:.68}
.tlc .title{font-size:13px;font-weight:600;opacity:1}
.tlc .grid{stroke:currentColor;opacity:.13;stroke-width:1;fill:none;shape-rendering:crispEdges}
.tlc .base{stroke:currentColor;opacity:.6;stroke-width:1;fill:none;shape-rendering:crispEdges}
.tlc .hit{fill:transparent}.tlc .hit:hover{fill:currentColor;opacity:.12}
.tlc .c1{fill:var(--c1)}.tlc .c2{fill:var(--c2)}.tlc .c3{fill:var(--c3)}.tlc .c4{fill:var(--c4)}.tlc .c5{fill:var(--c5)}
.tlc .c6{fill:var(--c6)}.tlc .new{fill:var(--new)}.tlc .gone{fill:var(--gone)}.tlc .changed{fill:var(--changed)}
.tlc .rejected{fill:var(--rejected)}
"""
"""The style of all charts; pages that hold several bring it once."""


@dataclass(frozen=True)
class Figure:
    """A picture: shows itself in notebooks; `svg` is its text, `save` writes it."""

    title: str
    body: str
    """The SVG without its style."""
    width: float
    height: float

    @property
    def svg(self) -> str:
        """A complete SVG document."""
        return self.markup(style=True)

    def markup(self, *, style: bool) -> str:
        """The `<svg>` element, with or without its style."""
        from html import escape

        own = f"<style>{STYLE}</style>" if style else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tlc" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" aria-label="{escape(self.title)}">{own}{self.body}</svg>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the picture as SVG. Returns the path."""
        target = local_path(path, "picture")
        write_part(target, f"{self.svg}\n".encode())
        return target

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Figure {self.title}>"
