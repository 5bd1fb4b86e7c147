"""``python -m benchmarks.adbc_child URL TABLE``: a whole table into Arrow batches by ADBC, dropped as they come."""

from __future__ import annotations

import sys
from functools import partial

import adbc_driver_postgresql.dbapi as adbc

from benchmarks.took import tell


def read(url: str, table: str) -> int:
    """Return how many rows a table has."""
    rows = 0
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
    return rows


if __name__ == "__main__":
    sys.exit(tell(partial(read, *sys.argv[1:])))
