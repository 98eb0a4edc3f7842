"""Iterate: slices run from guessed starts, and events that would have decided otherwise run again."""
