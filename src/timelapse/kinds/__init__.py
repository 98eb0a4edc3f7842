"""State kinds. One file each: the meaning in Python, the delta, and how deltas compose."""
