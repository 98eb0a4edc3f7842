"""Least squares: coefficients, and how much of what was measured they explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
_THRESHOLDS = 64


@dataclass(frozen=True)
class Fit:
    """`coefficients` of the columns, and R-squared: 1 less the squared residuals, of the squared deviations from the mean."""

    coefficients: tuple[float, ...]
    r_squared: float


def fit(columns: F64, y: F64) -> Fit:
    """Ordinary least squares."""
    found = np.linalg.lstsq(columns, y, rcond=None)[0]
    left = float(((y - columns @ found) ** 2).sum())
    whole = float(((y - y.mean()) ** 2).sum())
    return Fit(tuple(float(c) for c in found), 1 - left / whole if whole else 1.0)


def best_threshold(columns: Callable[[float], F64], over: F64, y: F64) -> tuple[Fit, float]:
    """The threshold with the best fit, among even steps from 0 to the largest value of `over`, and that fit."""
    steps = [float(a) for a in np.linspace(0.0, float(over.max()), _THRESHOLDS, endpoint=False)]
    found = [(fit(columns(a), y), a) for a in steps]
    return max(found, key=lambda one: one[0].r_squared)
