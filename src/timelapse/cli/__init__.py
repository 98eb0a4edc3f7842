"""The command line: one file per command or small group; each imports what it needs when it runs."""
