"""Watermarks through a real log: each comes back once, behind everything that was committed before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.marks import (
    MARKS_TABLE,
    MarkWriter,
    create_marks,
    drop_marks,
)
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import Sql
from tests.requirements import req
from tests.sources.mysql.test_stream import Log, log, rows_of

__all__ = ["log"]


LOW, HIGH = (Mark(kind, "token", "run") for kind in (MarkKind.LOW, MarkKind.HIGH))


@pytest.fixture
def writer(server: MysqlProtocolServer, log: Log) -> Iterator[MarkWriter]:
    with connect(log.source.settings) as session:
        for _ in range(2):
            create_marks(session, log.source.name)
            create_marks(session, "another")
    found = MarkWriter(log.source.settings)
    yield found
    found.close()
    server.execute("DROP TABLE IF EXISTS headrace.watermarks")


@req("T6")
@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
def test_each_mark_comes_back_once_in_its_place(
    log: Log, server: MysqlProtocolServer, sql: Sql, writer: MarkWriter, image: str
) -> None:
    server.execute(f"SET GLOBAL binlog_row_image = {image}")
    try:
        sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        writer.write(LOW)
        other = MarkWriter(replace(log.source.settings, name="another"))
        other.write(LOW)
        other.close()
        sql("INSERT INTO t VALUES (2)")
        writer.write(HIGH)
        sql("INSERT INTO t VALUES (3)")
    finally:
        server.execute("SET GLOBAL binlog_row_image = FULL")
    items = log.until(lambda found: len(rows_of(found)) >= 3)
    marked = [item for item in items if item.mark is not None]
    assert [item.mark.mark for item in marked if item.mark] == [LOW, HIGH]
    numbers = []
    for item in items:
        # A slow server's transaction may come in pieces.
        ended = item.block.index["last_piece"] == 1
        numbers += [int(scn) for scn in item.block.index["scn"][ended]]
        if item.mark is not None:
            # The window that it may close has its SCN, so the log is complete up to the one before only.
            assert item.block.covered_scn == item.mark.scn - 1
            numbers.append(item.mark.scn)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 5
    assert {body.table.name for item in items for body in item.block.bodies} == {"t"}


@req("F3", "A-7")
@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM headrace.watermarks",),
        ("UPDATE headrace.watermarks SET pipeline = CONCAT(pipeline, 'x')",),
        ("UPDATE headrace.watermarks SET mark = 'something else'",),
        ("UPDATE headrace.watermarks SET mark = 'low  b'",),
        ("TRUNCATE headrace.watermarks",),
        ("DROP TABLE headrace.watermarks",),
        ("BEGIN", "UPDATE headrace.watermarks SET mark = 'low a b'", "INSERT INTO t VALUES (1)", "COMMIT"),
        ("BEGIN", "UPDATE headrace.watermarks SET mark = 'low a b'",
         "UPDATE headrace.watermarks SET mark = 'high a b'", "COMMIT"),
    ],
    ids=["delete", "rename", "other text", "no token", "truncate", "drop", "beside data", "twice"],
)  # fmt: skip
def test_a_write_that_is_not_ours_stops_the_log(
    log: Log, sql: Sql, writer: MarkWriter, statements: tuple[str, ...]
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", *statements)
    with pytest.raises(WatermarkOutOfOrder, match=str(MARKS_TABLE)):
        log.until(lambda _: False)


def test_a_mark_that_cannot_be_written_is_named(
    log: Log, server: MysqlProtocolServer, writer: MarkWriter
) -> None:
    with connect(log.source.settings) as session:
        drop_marks(session, log.source.name)
        drop_marks(session, log.source.name)
    assert server.query("SELECT pipeline FROM headrace.watermarks") == (("another",),)
    with pytest.raises(WatermarkOutOfOrder, match="removed the row"):
        writer.write(LOW)
    server.execute("DROP TABLE headrace.watermarks")
    with pytest.raises(SourceUnavailable, match="cannot be written"):
        writer.write(LOW)


@req("D32", "N08")
def test_behind_a_mark_that_came_last_the_log_is_known_to_be_at_its_end(
    log: Log, writer: MarkWriter
) -> None:
    """Whoever waits for the end of the source's log would wait for ever where nobody writes."""
    writer.write(HIGH)
    marked = log.until(lambda found: any(item.mark for item in found))[-1]
    assert log.reader is not None
    log.reader.acknowledge(marked.position)
    log.close()
    log.open()
    items = log.until(bool)
    assert items[0].block.covered_scn >= log.source.end_scn() > marked.block.covered_scn
    assert not len(items[0].block.index)
