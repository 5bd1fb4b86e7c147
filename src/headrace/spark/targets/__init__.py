"""Targets: where folded changes go, behind one port."""
