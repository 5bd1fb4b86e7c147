"""Where no C compiler was there at the installation, the decoder in Python takes its place and captures the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_postgres import Sql

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[3]

CAPTURE = """
import sys
from pathlib import Path
# As if it had never been built.
sys.modules["headrace.sources.postgres._native"] = None
from headrace.sources.postgres.decoder import ENGINES, engine
from headrace.watermark.settings import DumpSettings
from headrace.sources.postgres import PostgresSource
from headrace.model.schema import TableId
from tests.integration.running import running_capture
from tests.waiting import until
import psycopg

assert (ENGINES, engine()) == (("python",), "python"), ENGINES
url, folder = sys.argv[1], Path(sys.argv[2])
with running_capture(PostgresSource(url), folder, DumpSettings(chunk_rows=3)) as running:
    until(running.dumped, "the copy")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("UPDATE t SET v = 'new' WHERE id = 2")
        session.execute("DELETE FROM t WHERE id = 3")
    wanted = {(n, "new" if n == 2 else "old") for n in (1, 2, 4, 5, 6, 7)}
    until(lambda: set(running.content(TableId("public", "t"))) == wanted, "the rows")
"""


def test_a_capture_works_without_the_extension(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 7) n",
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    environment.pop("HEADRACE_DECODER", None)
    done = subprocess.run(
        [sys.executable, "-c", CAPTURE, database, str(tmp_path)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
