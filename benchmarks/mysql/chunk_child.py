"""``python -m benchmarks.mysql.chunk_child HOW URL TABLE``: a whole table into Arrow, dropped as it comes.

HOW is ``chunks`` (our reader, chunk after chunk behind the last key, each in a snapshot of its own) or ``connectorx``
(one select). Prints what it took from the first connection on, without the start of Python.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks.mysql.server import DATABASE
from benchmarks.took import tell
from headrace.model.schema import TableId
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.settings import MysqlSettings

_CHUNK_ROWS = 65_536


def chunks(url: str, table: str) -> int:
    """Read by key range, as a dump does."""
    reader, name, rows = MysqlChunkReader(MysqlSettings(url)), TableId(DATABASE, table), 0
    last, after = reader.upper_bound(name), None
    while last is not None and after != last:
        chunk = reader.read(name, after, last, _CHUNK_ROWS)
        rows += chunk.rows.num_rows
        if chunk.last_key is None:
            break
        after = chunk.last_key
    reader.close()
    return rows


def connectorx(url: str, table: str) -> int:
    """Read by one select."""
    import connectorx

    found = connectorx.read_sql(f"{url}{DATABASE}", f"SELECT * FROM {table}", return_type="arrow")
    return int(found.num_rows)


def main() -> int:
    """Read, and print what it took."""
    parser = argparse.ArgumentParser(prog="chunk_child")
    parser.add_argument("how", choices=("chunks", "connectorx"))
    parser.add_argument("url")
    parser.add_argument("table")
    given = parser.parse_args()
    if given.how == "connectorx":
        import connectorx as _  # noqa: F401 - its import is no part of the run
    read = {"chunks": chunks, "connectorx": connectorx}[given.how]
    return tell(partial(read, given.url, given.table))


if __name__ == "__main__":
    sys.exit(main())
