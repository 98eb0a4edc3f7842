"""How long tests wait for what has to come: on a busy machine it comes late, and that is no fault."""

from __future__ import annotations

LONG = 600.0
"""Seconds: what has not come by then never will. Less than pytest-timeout gives a test, so that the test says what is missing."""
