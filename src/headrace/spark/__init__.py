"""Spark: the source ``headrace``, the apply job and its targets, reading at a frontier; the only place with pyspark."""
