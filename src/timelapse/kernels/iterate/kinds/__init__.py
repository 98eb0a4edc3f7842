"""Kinds that are traced in a way of their own: one file per kind, named as the kind's own (kinds/registry.py)."""
