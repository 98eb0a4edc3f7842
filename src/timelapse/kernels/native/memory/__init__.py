"""What a compiled function works on: hash tables, strings as codes, logs of operations, and their way from and to Arrow."""
