"""``python -m benchmarks.adbc_child URL TABLE``: a whole table into Arrow batches by ADBC, dropped as they come."""

from __future__ import annotations

import json
import sys
import time

import adbc_driver_postgresql.dbapi as adbc


def main() -> int:
    """Read, and print what it took from the first connection on, without the start of Python."""
    url, table = sys.argv[1:]
    wall, cpu = time.perf_counter(), time.process_time()
    rows = 0
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
    said = {
        "rows": rows,
        "run_s": time.perf_counter() - wall,
        "run_cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
