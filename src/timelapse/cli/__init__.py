"""The command line: one file per command or small group; each imports what it needs when it runs.

Begin with `main.py`. One file is one command or small group, loaded when it is called (`lean.py` keeps the
short ones short). `options.py` and `places.py` read arguments, `view.py` and its like print, `codes.py`
explains error codes, `catalogue.py` prints them as a page.
"""
