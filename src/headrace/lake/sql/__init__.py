"""Warehouse tables: the SQL of each dialect, and what a target does in it. No Spark.

Statements are written once, in PostgreSQL's words, and sqlglot writes them in each dialect. A dialect stands here only
when a real server of it has accepted the statements in a test.
"""
