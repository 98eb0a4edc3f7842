"""Passes that run as Python: handlers as they are, handlers written anew (flat/), and the serial loop."""
