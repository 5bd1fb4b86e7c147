"""A second real MariaDB that follows the first one by global transaction ids, and can take its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.testing.mariadb_server import MariadbServer
from tests.waiting import until

__all__ = ["promoted", "replicated"]

_FOLLOWS = {"server_id": "2", "log_slave_updates": "ON"}


@contextmanager
def replicated() -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """Give a primary and its replica, which has a log of its own with the same ids."""
    with MariadbServer() as primary, MariadbServer(settings=_FOLLOWS) as replica:
        # Each made its users itself, before there was anything to follow.
        primary.execute("RESET MASTER")
        replica.execute(
            "RESET MASTER",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port},"
            f" MASTER_USER = 'headrace', MASTER_PASSWORD = '{primary.PASSWORD}', MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        yield primary, replica


def promoted(primary: MariadbServer, replica: MariadbServer, *, lacks: bool = False) -> None:
    """End the primary once the replica has all of it; or let the replica lack what was committed since it stopped."""
    if not lacks:
        ((last,),) = primary.query("SELECT @@GLOBAL.gtid_binlog_pos")
        until(
            lambda: replica.query("SELECT @@GLOBAL.gtid_slave_pos") == ((last,),),
            "the replica has it all",
        )
    primary.kill()
    replica.execute("STOP SLAVE")
