"""How state is stored and moved between slices: tables, effects, and the hash that checks them."""
