"""The purity check: what handlers read or do that a replay cannot reproduce."""

from timelapse.analysis.purity.walk import purity_findings

__all__ = ["purity_findings"]
