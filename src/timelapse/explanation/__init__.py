"""What people are told of a plan: as text, for the terminal, in a notebook, as JSON and as a picture.

Begin with `model.py`, which is printed by `text.py`, drawn by `svg.py` and summed up by `summary.py`.
"""

from timelapse.explanation.model import Explanation, explain

__all__ = ["Explanation", "explain"]
