"""Measurements; each writes one JSON file under benchmarks/results."""
