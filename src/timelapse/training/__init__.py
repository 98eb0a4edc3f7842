"""Training data: what a program knew at each event, or at the rows of a table."""

from timelapse.training.rows import Features, features

__all__ = ["Features", "features"]
