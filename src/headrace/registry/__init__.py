"""Schema versions: every version of every table, kept for ever under its fingerprint."""
