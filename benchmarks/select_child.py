"""``python -m benchmarks.select_child URL TABLE ROWS LOAD``: a table in pages by its key ``id``, dropped as they come.

What a dump asks of the source and nothing else: the same pages at the same share of one connection's time, without
watermarks, and nothing is kept. What it costs a log that is read meanwhile is the server's and the machine's share.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import psycopg

from benchmarks.took import tell


def read(url: str, table: str, rows: str, load: str) -> int:
    """Read the table once; return the number of its rows."""
    rest = 1 / float(load) - 1
    after, count = 0, 0
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        end = _first(cursor, f"SELECT max(id) FROM {table}")
        while after < end:
            began = time.perf_counter()
            page = f"SELECT * FROM {table} WHERE id > {after} ORDER BY id LIMIT {rows}"
            with cursor.copy(f"COPY ({page}) TO STDOUT (FORMAT binary)") as pieces:
                # The trailer comes as a message too.
                count += sum(1 for _ in pieces) - 1
            after += int(rows)
            time.sleep((time.perf_counter() - began) * rest)
    return count


def _first(cursor: psycopg.Cursor[tuple[int]], sql: str) -> int:
    row = cursor.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]


if __name__ == "__main__":
    sys.exit(tell(partial(read, *sys.argv[1:])))
