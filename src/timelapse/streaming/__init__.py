"""The same program live: streams come in, epochs are committed, and replaying the journal gives the same outputs."""
