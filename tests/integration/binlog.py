"""Captures of a real server with a binary log: what its tables hold, and how far the change log has come."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymysql.cursors import Cursor

from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.integration.running import Running
from tests.waiting import until

__all__ = ["Writer", "caught_up", "go_on", "in_source", "shopping", "writing"]


def in_source(server: MysqlProtocolServer, table: TableId) -> Counter[tuple[Any, ...]]:
    """Return a table's rows at the source."""
    return Counter(server.query(f"SELECT * FROM {table}"))


def caught_up(running: Running, source: MysqlSource) -> None:
    """Return when every dump is done and the change log has all that is committed by now."""
    end = source.end_scn()
    until(lambda: running.dumped() and running.reader.tail().covered_scn >= end, "all of the log")


class Writer(threading.Thread):
    """One session that writes until it is told to stop.

    Args:
        server: where.
        database: which its statements mean.
        seed: of what it does.
        write: one transaction or more, over and over; is given the cursor, chance, and how often it was called.
        rest_s: between two of them.
    """

    def __init__(
        self,
        server: MysqlProtocolServer,
        database: str,
        seed: int,
        write: Callable[[Cursor, random.Random, int], None],
        rest_s: float = 0.0,
    ) -> None:
        super().__init__(name=f"writer {seed}")
        self._connection = server.connect(database)
        self._rng = random.Random(seed)
        self._write = write
        self._rest_s = rest_s
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                while not self._ended.wait(self._rest_s):
                    self._write(cursor, self._rng, self.done)
                    self.done += 1
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self._error = error
        finally:
            self._connection.close()

    def end(self) -> None:
        """Return when the last transaction is through."""
        self._ended.set()
        self.join(60)
        if self._error is not None:
            raise self._error


def go_on(writers: Sequence[Writer]) -> None:
    """Return when writers have written some more."""
    done = sum(writer.done for writer in writers)
    until(lambda: sum(writer.done for writer in writers) > done + 1, "the writers go on")


@contextmanager
def writing(*writers: Writer) -> Iterator[None]:
    """Let writers write until the block ends."""
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.end()


def shopping(cursor: Cursor, rng: random.Random, done: int, seed: int) -> None:
    """Change rows at random, under every form of row image."""
    cursor.execute("BEGIN")
    for _ in range(rng.randint(1, 4)):
        # Each writer has keys of its own, so that none waits for another.
        id_ = 4 * rng.randint(1, 60) + seed
        other = 4 * rng.randint(1, 60) + seed
        image = rng.choice(("FULL", "MINIMAL", "NOBLOB"))
        cursor.execute(f"SET SESSION binlog_row_image = {image}")
        cursor.execute(
            rng.choice(
                (
                    f"REPLACE INTO t VALUES ({id_}, {done}, 'r{done}')",
                    f"UPDATE t SET v = {done} WHERE id = {id_}",
                    f"UPDATE t SET b = 'b{done}' WHERE id = {id_}",
                    f"DELETE FROM t WHERE id = {id_}",
                    f"UPDATE IGNORE t SET id = {other} WHERE id = {id_}",
                )
            )
        )
    cursor.execute(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
