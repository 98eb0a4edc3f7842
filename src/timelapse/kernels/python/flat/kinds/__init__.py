"""What operations of each kind become as plain Python: one file per kind, named as the kind's own (kinds/registry.py)."""
