"""The table ``headrace.places`` of a warehouse: how far each consumer is, changed in the transaction of its data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from headrace.client.errors import CheckpointUnusable
from headrace.lake.sql.columns import found_columns
from headrace.lake.sql.dialect import Dialect, literal, table_name
from headrace.lake.sql.ledger import SCHEMA
from headrace.lake.sql.session import Session
from headrace.model.schema import TableId
from headrace.outputs.steps import Told
from headrace.wire.place import Place

__all__ = ["PLACES", "Held", "PlaceTable"]

PLACES = TableId(SCHEMA, "places")


class Held(NamedTuple):
    """What is remembered of a consumer.

    Attributes:
        place: behind everything that its tables hold; None before the first.
        complete: tables whose dump they hold wholly.
        told: what was said of a table's columns, and none of its rows has followed yet.
        since: everything behind this SCN came; 0 where all did that the log held.
        in_gap: tables that were complete before a gap, whose repair makes them so again.
    """

    place: Place | None
    complete: frozenset[str]
    told: Mapping[str, Sequence[Told]] = MappingProxyType({})
    since: int = 0
    in_gap: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, place: str, further: str) -> Held:
        """Read what `further` wrote beside a place.

        Raises:
            ValueError: a text is none of these.
            TypeError: likewise.
            KeyError: likewise.
        """
        said = json.loads(further)
        said = said if isinstance(said, dict) else {"complete": said, "told": {}}
        told = {table: [Told(**one) for one in ones] for table, ones in said["told"].items()}
        since, in_gap = int(said.get("since", 0)), frozenset(said.get("in_gap", ()))
        return cls(Place.parse(place), frozenset(said["complete"]), told, since, in_gap)

    @property
    def further(self) -> str:
        """What is remembered beside the place, as text: mostly no more than names of tables."""
        complete = sorted(self.complete)
        if not (self.told or self.since or self.in_gap):
            return json.dumps(complete)
        told = {table: [one.to_json() for one in ones] for table, ones in self.told.items()}
        in_gap = sorted(self.in_gap)
        said = {"complete": complete, "told": told, "since": self.since, "in_gap": in_gap}
        return json.dumps(said)


class PlaceTable:
    """The row of one consumer.

    Args:
        dialect: of the warehouse.
        consumer: its name.
    """

    def __init__(self, dialect: Dialect, consumer: str) -> None:
        self._dialect, self._consumer = dialect, consumer

    def read(self, session: Session) -> Held:
        """Return what is remembered.

        Raises:
            CheckpointUnusable: the row does not read.
        """
        if not found_columns(session, self._dialect, PLACES):
            return Held(None, frozenset())
        query = f"SELECT place, complete FROM {table_name(PLACES)} WHERE {self._mine}"
        found = session.rows(query)
        if not found:
            return Held(None, frozenset())
        try:
            return Held.parse(*found[0])
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointUnusable(
                f"The place of {self._consumer} in {PLACES} does not read.",
                next_step="restore the row, or remove it with the tables and begin anew.",
            ) from error

    def make(self, session: Session) -> None:
        """Make the table unless it is there."""
        session.run(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        session.run(
            f"CREATE TABLE IF NOT EXISTS {table_name(PLACES)} "
            "(consumer text NOT NULL, place text NOT NULL, complete text NOT NULL)"
        )

    def write(self, session: Session, before: Held, held: Held) -> None:
        """Put a place over the one that was read or written before, inside a transaction.

        Raises:
            CheckpointUnusable: somebody else has changed it since.
        """
        place, complete = literal(str(held.place)), literal(held.further)
        changed = 0
        if before.place is not None:
            changed = session.run(
                f"UPDATE {table_name(PLACES)} SET place = {place}, complete = {complete} "
                f"WHERE {self._mine} AND place = {literal(str(before.place))}"
            )
        elif not session.rows(f"SELECT 1 FROM {table_name(PLACES)} WHERE {self._mine}"):
            changed = session.run(
                f"INSERT INTO {table_name(PLACES)} (consumer, place, complete) "
                f"VALUES ({literal(self._consumer)}, {place}, {complete})"
            )
        if changed != 1:
            raise CheckpointUnusable(
                f"The place of {self._consumer} in {PLACES} was changed by somebody else during a batch: two consumers "
                "have this name, or one that has ended was still writing.",
                next_step="end one of them, or give it a name and tables of its own; the batch is tried again.",
            )

    @property
    def _mine(self) -> str:
        return f"consumer = {literal(self._consumer)}"
