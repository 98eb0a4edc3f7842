"""Arithmetic and comparison, for those who generate other things than expressions."""

from timelapse.kernels.native.lowering.comparisons import compared, truth
from timelapse.kernels.native.lowering.numbers import arithmetic, as_float, fitting, negated

__all__ = ["arithmetic", "as_float", "compared", "fitting", "negated", "truth"]
