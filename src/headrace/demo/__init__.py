"""A shop that is busy while it is being copied: a server of its own, its load, and the proof."""
