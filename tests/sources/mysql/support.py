"""Reads a real log to its end: events, descriptions, and the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import TableFacts, read_collations, read_table
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.dump import Dump
from headrace.sources.mysql.engine import Engine, make_engine
from headrace.sources.mysql.events import ROWS, Event, EventType, parse_rows_header
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.settings import MysqlSettings, ZeroDates
from headrace.sources.mysql.table_map import TableMap, parse_table_map
from headrace.sources.mysql.versions import version_of
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import here

__all__ = [
    "SERVER_ID",
    "Decoded",
    "Start",
    "changes",
    "decoded",
    "decoded_events",
    "events",
    "here",
    "settings",
]

SERVER_ID = 4_242

Start = tuple[str, int]


def settings(server: MysqlProtocolServer) -> MysqlSettings:
    return MysqlSettings(server.url())


def events(server: MysqlProtocolServer, start: Start | str = ("", 4)) -> Iterator[Event]:
    """Yield the events of the log up to its end."""
    log = Dump(connect(settings(server)), settings(server), SERVER_ID, start, follow=False)
    try:
        while (event := log.next(30)) is not None:
            yield event
        assert log.ended
    finally:
        log.close()


@dataclass
class Decoded:
    """What a stretch of the log holds of one table."""

    maps: list[TableMap]
    batches: list[pa.RecordBatch]

    @property
    def rows(self) -> pa.RecordBatch:
        """All rows, which are of one version."""
        (batch,) = self.batches
        return batch


def decoded(
    server: MysqlProtocolServer,
    table: TableId,
    start: Start,
    zero_dates: ZeroDates = "refuse",
    engine: Engine | None = None,
) -> Decoded:
    """Decode the rows of a table from a place of the log on; ords go on over all transactions."""
    with connect(settings(server)) as session:
        collations = read_collations(session)
        facts = read_table(session, table, collations)
    return decoded_events(
        events(server, start), table, collations, lambda _: facts, zero_dates, engine
    )


def decoded_events(
    log: Iterator[Event],
    table: TableId,
    collations: Collations,
    catalog: Callable[[TableId], TableFacts | None],
    zero_dates: ZeroDates = "refuse",
    engine: Engine | None = None,
) -> Decoded:
    maps: list[TableMap] = []
    versions: dict[bytes, TableRows] = {}
    ids: dict[int, bytes] = {}
    ord_ = 0
    for event in log:
        if event.type == EventType.TABLE_MAP:
            map_ = parse_table_map(event, collations)
            if map_.table == table:
                ids[map_.table_id] = map_.raw
                if map_.raw not in versions:
                    maps.append(map_)
                    version = version_of(map_, catalog)
                    versions[map_.raw] = TableRows(
                        version.schema, 1, list(version.types), zero_dates, engine or make_engine()
                    )
            else:
                ids.pop(map_.table_id, None)
        elif event.type in ROWS:
            header = parse_rows_header(event)
            if header.table_id in ids:
                ord_ += versions[ids[header.table_id]].add(1, ord_, event.type, header)
    return Decoded(maps, [rows.body().batch for rows in versions.values() if len(rows)])


def changes(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    """Return rows as tuples of operation and cells; a missing cell is an ellipsis."""
    names = batch.schema.names[4:]
    found = []
    for row in batch.to_pylist():
        mask = row["_missing"] or b""
        found.append(
            (
                row["_op"],
                *(
                    ... if n >> 3 < len(mask) and mask[n >> 3] >> (n & 7) & 1 else row[name]
                    for n, name in enumerate(names)
                ),
            )
        )
    return found
