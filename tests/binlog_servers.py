"""What a test says differently to MySQL and to MariaDB; all else is said alike."""

from __future__ import annotations

import re

from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.waiting import until

__all__ = [
    "expressed",
    "expressed_for_mysql",
    "here",
    "hold_commits",
    "is_mysql",
    "let_commits",
    "make_user",
    "purge_log",
    "reset_log",
]

_COUNTED = re.compile(r"\bseq_(\d+)_to_(\d+)\b(?: ([a-z])\b)?")
_DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))


def is_mysql(server: MysqlProtocolServer) -> bool:
    """Whether a server is MySQL itself."""
    return server.kind == "MySQL"


def expressed(server: MysqlProtocolServer, sql: str) -> str:
    """Return a statement of MariaDB's as the server understands it: MySQL has no tables that count."""
    return expressed_for_mysql(sql) if is_mysql(server) else sql


def expressed_for_mysql(sql: str) -> str:
    """Return a statement of MariaDB's as MySQL understands it."""
    return _COUNTED.sub(_counted, sql)


def _counted(match: re.Match[str]) -> str:
    first, last = int(match[1]), int(match[2])
    places = range(len(str(last - first)))
    number = " + ".join(f"{10**place} * d{place}.d" for place in places)
    tables = ", ".join(f"({_DIGITS}) d{place}" for place in places)
    rows = f"SELECT {first} + {number} AS seq FROM {tables} ORDER BY seq LIMIT {last - first + 1}"
    return f"({rows}) {match[3] or 'counted'}"


def here(server: MysqlProtocolServer) -> tuple[str, int]:
    """Return where the log ends now."""
    words = "BINARY LOG" if is_mysql(server) else "MASTER"
    (row,) = server.query(f"SHOW {words} STATUS")
    return row[0], row[1]


def purge_log(server: MysqlProtocolServer) -> None:
    """Remove the server's log up to now, which nobody reads."""
    server.execute("FLUSH BINARY LOGS")
    newest, _ = here(server)

    def gone() -> bool:
        # A moment after a flush MariaDB still needs the file before, and keeps it without a word.
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    until(gone, "the log is gone")


def reset_log(server: MysqlProtocolServer) -> str:
    """Return the statement after which a log and its ids begin anew."""
    return "RESET BINARY LOGS AND GTIDS" if is_mysql(server) else "RESET MASTER"


def make_user(server: MysqlProtocolServer, name: str, *grants: str) -> None:
    """Make a user anew, with rights such as ``SELECT ON d.*``."""
    server.execute(
        f"DROP USER IF EXISTS {name}@'%'",
        f"CREATE USER {name}@'%' IDENTIFIED BY '{server.PASSWORD}'",
        *(f"GRANT {grant} TO {name}@'%'" for grant in grants),
    )


def hold_commits(server: MysqlProtocolServer) -> None:
    """Let whatever is committed from now on be in the log, and not be visible, until `let_commits`."""
    side = "source" if is_mysql(server) else "master"
    if is_mysql(server) and not server.query(
        "SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'rpl_semi_sync_source'"
    ):
        server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    server.execute(
        f"SET GLOBAL rpl_semi_sync_{side}_wait_point = AFTER_SYNC",
        f"SET GLOBAL rpl_semi_sync_{side}_timeout = 60000",
        f"SET GLOBAL rpl_semi_sync_{side}_enabled = ON",
    )


def let_commits(server: MysqlProtocolServer) -> None:
    """Let all commits go through."""
    side = "source" if is_mysql(server) else "master"
    if server.query(f"SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_{side}_enabled'"):
        server.execute(f"SET GLOBAL rpl_semi_sync_{side}_enabled = OFF")
