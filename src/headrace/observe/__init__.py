"""Watching the parts at work: failpoints, status, progress."""
