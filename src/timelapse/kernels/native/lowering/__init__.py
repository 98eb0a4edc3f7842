"""From the handlers of a pass to the source of one flat function."""
