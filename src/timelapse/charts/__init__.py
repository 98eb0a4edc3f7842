"""Charts: what is to be seen is described once, and drawn here only.

Pages and notebooks show them as self-contained SVG (`figure.py`), made without a plotting library: small, crisp in print, light
and dark, with texts for who points at a mark. `timeline.py`, `lines.py` and `histogram.py` are the charts, `axis.py` chooses their
marks, `style.py` has the colours. `drawn.py` has matplotlib draw lines for files of other forms and for notebooks that go on with
the figure; it alone imports it.
"""

from timelapse.charts.figure import Figure
from timelapse.charts.timeline import Band, Timeline, timeline

__all__ = ["Band", "Figure", "Timeline", "timeline"]
