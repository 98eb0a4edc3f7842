"""The colours of all charts: one set for light pages, for paper and for files, one for dark pages."""

COLOURS = ("#2f6fdf", "#0f9d76", "#c98a04", "#9a4fd0", "#0b93b5", "#8a94a6")
"""Of series, in their order; the last one is grey."""
_DARK = ("#5f9bff", "#22b98a", "#dba52c", "#b87af0", "#2fb0d0", "#8f9bb0")


def _named(colours: tuple[str, ...], gone: str, changed: str) -> str:
    numbered = "".join(f"--c{n + 1}:{colour};" for n, colour in enumerate(colours))
    return f"{numbered}--new:{colours[0]};--gone:{gone};--changed:{changed};--rejected:{colours[-1]}"


_SHAPES = """\
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
CSS = f"""
.tlc{{color:inherit;{_named(COLOURS, "#d8572b", "#b08a1e")}}}
@media screen and (prefers-color-scheme:dark){{.tlc{{{_named(_DARK, "#f5784e", "#cfa63a")}}}}}
{_SHAPES}"""
"""The style of charts as SVG; pages that hold several bring it once."""
