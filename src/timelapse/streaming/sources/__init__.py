"""Where live rows come from. Each source has a file; `base.py` says what a source is."""
