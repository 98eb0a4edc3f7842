"""Random handler sources for the compiler: what they are made of, logs at the edges, and the comparison."""
