"""What plots return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timelapse.charts.style import CSS
from timelapse.store.parts import write_part
from timelapse.store.places import local_path


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

        own = f"<style>{CSS}</style>" if style else ""
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
