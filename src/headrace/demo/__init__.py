"""A shop that is busy while it is being copied: an embedded PostgreSQL, its load, and the proof."""
