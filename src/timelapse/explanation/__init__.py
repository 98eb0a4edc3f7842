"""What people are told of a plan: as text, for the terminal, in a notebook, as JSON and as a picture."""

from timelapse.explanation.model import Explanation, explain

__all__ = ["Explanation", "explain"]
