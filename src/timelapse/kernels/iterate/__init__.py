"""Iterate: slices run from guessed starts, and events that would have decided otherwise run again.

Begin with `repair.py`. `tracer.py` runs events and notes what each read, decided and wrote (`bounds.py`:
integers that note the comparisons made with them), `recording.py` keeps it, `sweep.py` goes through it from
the exact start.
"""
