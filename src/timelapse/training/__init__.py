"""Training data: what a program knew at each event, or at the rows of a table.

Begin with `rows.py`; `questions.py` puts rows of a table to a program as events.
"""

from timelapse.training.rows import Features, features

__all__ = ["Features", "features"]
