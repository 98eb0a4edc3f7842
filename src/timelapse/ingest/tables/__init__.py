"""Tables that are kept elsewhere: Delta, Iceberg, PostgreSQL, Spark's catalogue. Each is read as parts, which stand for files."""
