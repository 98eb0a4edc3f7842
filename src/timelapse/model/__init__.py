"""What users write with: events, records, programs, their types and their declarations."""
