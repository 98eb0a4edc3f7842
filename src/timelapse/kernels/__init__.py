"""A pass over a slice: what runs handlers over events and collects what they did."""
