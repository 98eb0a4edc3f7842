"""A live run over HTTP: rows that are sent, states, outputs as they come, health, metrics, a page."""
