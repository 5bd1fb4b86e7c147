"""What a capture costs its source is seen where people look: in its log, in the status and in the relay's metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.fixtures_postgres import Sql
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]


def metrics(url: str) -> dict[str, float]:
    """Return what the relay says of the capture, by name and labels."""
    found = re.findall(r"^(headrace_capture_\S+) (\S+)$", ask(url, "/metrics").body.decode(), re.M)
    return {name: float(value) for name, value in found}


@req("D121")
def test_slow_queries_and_large_values_are_counted_and_named(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, b bytea)",
        "INSERT INTO t SELECT n, 'small', NULL FROM generate_series(1, 3) n",
    )
    file, said = tmp_path / "shop.yaml", tmp_path / "said"
    file.write_text(
        f"name: shop\nsource: {{type: postgres, url: {json.dumps(database)}, tables: ['public.*'],"
        " slow_query_s: 0.3, large_value: 100KiB}\n"
        f"target: {{type: delta, path: {tmp_path}/lake}}\nrelay: {{listen: '127.0.0.1:0'}}\n"
    )

    def command(*words: str) -> None:
        done = CliRunner().invoke(app, [*words], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    def status() -> dict[str, object]:
        done = CliRunner().invoke(app, ["status", str(file), "--json"], catch_exceptions=False)
        detail: dict[str, object] = json.loads(done.stdout)["roles"].get("capture", {})
        return detail.get("detail") or {}  # type: ignore[return-value]

    with ExitStack() as stack, said.open("wb") as output:

        def started(*words: str, **options: object) -> subprocess.Popen[str]:
            process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-m", *words, str(file)], text=True, **options
            )  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        started("headrace.replicator.capture_process", stderr=output, stdout=output)
        relay = started(
            *("headrace.cli.main", "relay"),
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert relay.stdout is not None
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+", relay.stdout.readline())
        until(lambda: status().get("changes", 0), "the first copy", 60)
        quiet = metrics(url)
        assert quiet['headrace_capture_slowest_query_seconds{source="shop"}'] < 60
        before = sum(v for name, v in quiet.items() if "slow_queries_total" in name)

        # Each row that is looked at costs the source a fifth of a second.
        slow = "pg_sleep(0.2) IS NOT NULL"
        command("dump", "start", str(file), "--table", "public.t", "--where", slow)
        sql(
            "INSERT INTO t VALUES (10, repeat('x', 102400), NULL), (11, 'small', NULL)",
            "INSERT INTO t VALUES (12, 'small', decode(repeat('ab', 300000), 'hex'))",
        )
        chunks = 'headrace_capture_slow_queries_total{source="shop",kind="chunk"}'
        until(lambda: metrics(url).get(chunks), "the slow chunk at /metrics", 60)
        large = 'headrace_capture_large_values_total{source="shop"}'
        until(lambda: metrics(url)[large] >= 2, "the large values at /metrics", 60)
        found, told = metrics(url), status()
        assert sum(v for name, v in found.items() if "slow_queries_total" in name) > before
        assert found['headrace_capture_slowest_query_seconds{source="shop"}'] > 0.3
        assert found['headrace_capture_largest_value_bytes{source="shop"}'] == 300_000
        assert told["largest_value"] == "public.t.b"
        shown = CliRunner().invoke(app, ["status", str(file)], catch_exceptions=False).stdout
        assert re.search(r"\d+ slow quer(y|ies) at the source, the slowest [\d.]+ s: \w+ of", shown)
    log = said.read_text()
    assert re.search(r"shop: a query at the source took [\d.]+ s \(chunk of public\.t\)", log)
    assert log.count("public.t.v holds values of") == log.count("public.t.b holds values of") == 1
    assert "source.slow_query_s" in log
    assert "xxxx" not in log
