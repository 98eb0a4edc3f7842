"""Ordinary idioms whose own read of the state is no dependency. One recogniser, one file."""

from __future__ import annotations

from timelapse.analysis.idioms.addition import Addition
from timelapse.analysis.idioms.base import GuardRule, WriteRule
from timelapse.analysis.idioms.extremum import GuardedExtremum, WrittenExtremum
from timelapse.analysis.idioms.first import FirstWrite
from timelapse.analysis.idioms.membership import Membership

GUARD_RULES: tuple[GuardRule, ...] = (Membership(), FirstWrite(), GuardedExtremum())
WRITE_RULES: tuple[WriteRule, ...] = (Addition(), WrittenExtremum())
