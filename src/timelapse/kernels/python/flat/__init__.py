"""Passes that run as Python, rewritten: handlers whose states are plain dicts and whose events are plain columns."""
