"""Edit and rerun: what is kept, under which key, and that it never changes a result."""
