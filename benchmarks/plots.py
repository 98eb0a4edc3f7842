"""Plots with matplotlib."""

from __future__ import annotations

import io

from benchmarks.report import Plot


def draw(plot: Plot) -> bytes:
    """The plot as SVG."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    height = 0.35 * len(plot.series[0].x) + 1.2 if plot.bars else 4.2
    figure = Figure(figsize=(8.5, height), layout="constrained")
    axes = figure.add_subplot()
    if plot.bars:
        for one in plot.series:
            axes.barh([str(x) for x in one.x], one.y, color="#35618f")
            for row, value in enumerate(one.y):
                axes.annotate(f" {value:.3g}", (value, row), va="center", fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.1)
    else:
        for one in plot.series:
            axes.plot(one.x, one.y, marker="o", markersize=3, label=one.name)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
        if not plot.log:
            axes.set_ylim(bottom=0)
    if plot.log:
        (axes.set_xscale if plot.bars else axes.set_yscale)("log")
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(plot.title, fontsize=10)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    out = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None})
    return out.getvalue()
