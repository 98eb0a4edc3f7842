"""The machine: Java, Spark sessions, memory, and `doctor`."""
