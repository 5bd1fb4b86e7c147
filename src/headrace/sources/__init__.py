"""① Read the log, read chunks: one adapter for each kind of source database."""
