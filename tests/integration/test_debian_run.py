"""``headrace run`` against Debian's PostgreSQL 15 as an administrator would hand it out.

Over TCP with a SCRAM password and verified TLS; the role may replicate and select, and nothing else; slot and
publication were made for it and are named in the file; the password comes from the environment.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from headrace.testing.postgres import DebianPostgres
from tests.e2e.pipeline import HEADRACE
from tests.requirements import req

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.debian_postgres,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

SECRET = "s3cr3t/with@signs"


@pytest.fixture(scope="module")
def server() -> Iterator[DebianPostgres]:
    with DebianPostgres() as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: DebianPostgres) -> Iterator[psycopg.Connection]:
    """What the administrator prepares; nothing more is granted to anybody."""
    with psycopg.connect(server.create_database("shop"), autocommit=True) as admin:
        for statement in (
            f"CREATE ROLE reader LOGIN REPLICATION PASSWORD '{SECRET}'",
            "REVOKE ALL ON DATABASE shop FROM public",
            "GRANT CONNECT ON DATABASE shop TO reader",
            "CREATE SCHEMA shop",
            "GRANT USAGE ON SCHEMA shop TO reader",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, note text, price numeric(10, 2))",
            "CREATE TABLE shop.events (kind text, at timestamptz)",
            "ALTER TABLE shop.events REPLICA IDENTITY FULL",
            "GRANT SELECT ON ALL TABLES IN SCHEMA shop TO reader",
            "INSERT INTO shop.orders SELECT n, 'order ' || n, n / 7.0 FROM generate_series(1, 500) n",
            "INSERT INTO shop.events SELECT 'click', '2024-01-01' FROM generate_series(1, 40)",
            "CREATE PUBLICATION theirs FOR TABLES IN SCHEMA shop WITH (publish_via_partition_root = true)",
            "SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')",
        ):
            admin.execute(statement.encode())
        yield admin


def configured(folder: Path, server: DebianPostgres, tls: str) -> Path:
    """Write the file; the password is a name in it."""
    url = server.url("shop", "reader", "PLACE").replace("PLACE", "${env:SHOP_PASSWORD}")
    file = folder / "shop.yaml"
    file.write_text(
        "name: shop\n"
        f'source: {{type: postgres, url: "{url.replace("verify-full", tls)}", '
        "tables: ['shop.*'], slot: theirs, publication: theirs}\n"
        "target: {type: delta, path: ./lake}\n"
        "spark: {driver_memory: 1g}\n",
        encoding="utf-8",
    )
    return file


def headrace(*words: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
    """Run one command with the password in the environment, escaped as in any URL."""
    return subprocess.run(
        [*HEADRACE, *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "SHOP_PASSWORD": quote(secret, safe="")},
    )


def assert_unseen(folder: Path, *outputs: str) -> None:
    """Check that the password stands in no output and in no file that we wrote."""
    spellings = (SECRET, quote(SECRET, safe=""))
    for text in outputs:
        assert not any(spelling in text for spelling in spellings)
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(spelling.encode() in data for spelling in spellings), path


CHANGES = (
    "UPDATE shop.orders SET note = 'changed' WHERE id <= 10",
    "DELETE FROM shop.orders WHERE id > 490",
    "UPDATE shop.orders SET id = 1000 WHERE id = 20",
    "INSERT INTO shop.events VALUES ('click', '2024-01-01'), ('view', now())",
    "DELETE FROM shop.events WHERE ctid = (SELECT min(ctid) FROM shop.events)",
)


@req("C70", "C75", "C24", "H14")
def test_run_once_and_verify_with_a_limited_role_over_tls(
    server: DebianPostgres, shop: psycopg.Connection, tmp_path: Path
) -> None:
    file = configured(tmp_path, server, "verify-full")
    outputs = []
    for statements in ((), CHANGES):
        for statement in statements:
            shop.execute(statement.encode())
        done = headrace("run", str(file), "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        checked = headrace("verify", str(file))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        outputs += [done.stdout, done.stderr, checked.stdout, checked.stderr]
    assert_unseen(tmp_path, *outputs)
    # Nothing was made at the source beside what the administrator had made.
    assert shop.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == [("theirs",)]
    assert shop.execute("SELECT pubname FROM pg_publication").fetchall() == [("theirs",)]
    assert shop.execute("SELECT to_regnamespace('headrace')::text").fetchone() == (None,)


@req("C70", "C75")
def test_preflight_verifies_the_certificate(
    server: DebianPostgres, shop: psycopg.Connection, tmp_path: Path
) -> None:
    done = headrace("preflight", str(configured(tmp_path, server, "verify-ca")))
    assert done.returncode == 0, done.stdout + done.stderr
    file = configured(tmp_path, server, "verify-full")
    strange = tmp_path / "strange.crt"
    subprocess.run(
        ["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=other",
         "-keyout", os.devnull, "-out", str(strange)], check=True, capture_output=True,
    )  # fmt: skip
    known = quote(str(server.certificate), safe="")
    file.write_text(file.read_text().replace(known, quote(str(strange), safe="")))
    refused = headrace("preflight", str(file))
    assert refused.returncode == 2
    assert "certificate verify failed" in " ".join(refused.stderr.split())
    assert_unseen(tmp_path, refused.stdout, refused.stderr)


@req("C70")
def test_a_wrong_password_is_refused_and_shown_nowhere(
    server: DebianPostgres, shop: psycopg.Connection, tmp_path: Path
) -> None:
    file = configured(tmp_path, server, "verify-full")
    done = headrace("preflight", str(file), secret="wr0ng" + SECRET)
    assert done.returncode == 2
    assert "password authentication failed" in " ".join(done.stderr.split())
    assert_unseen(tmp_path, done.stdout, done.stderr)
