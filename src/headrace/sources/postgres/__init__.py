"""PostgreSQL 14 to 18: logical decoding through pgoutput, chunk reads, watermarks in the log."""

from headrace.sources.postgres.source import PostgresSource

__all__ = ["PostgresSource"]
