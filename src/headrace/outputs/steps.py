"""What waits for one table of a database, in steps: another begins where the columns change.

In: changes and events in the order of the stream. Out: stretches of it, each with rows of one version as far as
transactions allow it. Rows from before a column went, or changed its name or type, are written while the table has it.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.fold import promote
from headrace.model.block import SystemEvent
from headrace.model.schema import TableSchema
from headrace.model.succession import NO_NUMBERS, Numbers, successors

__all__ = ["Step", "Told", "Waiting"]


@dataclass(frozen=True, slots=True)
class Told:
    """What a schema event says of a table's columns.

    Attributes:
        scn: from which on they are so.
        schema_id: of their version.
        numbers: the source's own of them, as far as they were told.
        was_id: version before, 0 where nothing was told of it.
        was: numbers of its columns.
    """

    scn: int
    schema_id: int
    numbers: Numbers
    was_id: int = 0
    was: Numbers = field(default_factory=dict)

    @classmethod
    def of(cls, event: SystemEvent) -> Told:
        """Read an event of kind `SystemKind.SCHEMA`."""
        said, was = event.payload, event.payload.get("was") or {}
        return cls(
            event.scn,
            int(said["schema_id"]),
            dict(said.get("numbers") or {}),
            int(was.get("schema_id", 0)),
            dict(was.get("numbers") or {}),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values, of which ``Told(**values)`` makes an equal one."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of what waits.

    Attributes:
        upto_scn: its inclusive end; None of the last one, which has everything that is left.
        batches: changes, each batch with its version.
        truncates: positions.
        told: what was said of the columns since the rows before it; no row has followed where it has none.
        known: numbers per version, as far as they were told up to its end.
    """

    upto_scn: int | None
    batches: list[tuple[TableSchema, pa.RecordBatch]]
    truncates: list[tuple[int, int]]
    told: list[Told]
    known: Mapping[int, Numbers]

    @property
    def schema(self) -> TableSchema | None:
        """Version of the newest rows with the numbers of its columns, None without rows."""
        if not self.batches:
            return None
        schema = self.batches[-1][0]
        return replace(schema, numbers=self._numbers(schema))

    def was(self, schema: TableSchema) -> TableSchema | None:
        """Return the version that a table had before, with its numbers; None where nothing was told of it.

        Args:
            schema: columns of the table.
        """
        if not self.told or not self.told[0].was.keys() >= set(schema.names):
            return None
        return replace(schema, numbers={name: self.told[0].was[name] for name in schema.names})

    def changes(self, schema: TableSchema) -> list[pa.RecordBatch]:
        """Return the changes in the columns of a version, which has its numbers.

        Raises:
            IncompatibleSchemaChange: a value does not fit.
        """
        return [
            promote(
                batch,
                old,
                schema,
                successors(old.names, schema.names, self._numbers(old), schema.numbers),
            )
            for old, batch in self.batches
        ]

    def _numbers(self, schema: TableSchema) -> Numbers:
        """Return the numbers of a version's columns; of one that a filter has narrowed, those that were told last."""
        if found := self.known.get(schema.schema_id):
            return found
        latest = self.told[-1].numbers if self.told else NO_NUMBERS
        if not latest.keys() >= set(schema.names):
            return NO_NUMBERS
        return {name: latest[name] for name in schema.names}


@dataclass(slots=True)
class Waiting:
    """What came for one table since the last checkpoint, in its order.

    Attributes:
        pending: what was said before, and no row has followed yet.
        batches: changes, each batch with its version.
        truncates: positions.
        told: what was said of the columns.
    """

    pending: list[Told] = field(default_factory=list)
    batches: list[tuple[TableSchema, pa.RecordBatch]] = field(default_factory=list)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def steps(self, applied_scn: int) -> list[Step]:
        """Return the steps above a position, at least one, which may be empty."""
        begins = {*self._new_versions(applied_scn), *(one.scn for one in self.told)}
        ends: list[int | None] = [scn - 1 for scn in sorted(begins) if scn - 1 > applied_scn]
        steps = []
        told, known = list(self.pending), _known({}, self.pending)
        after = applied_scn
        for end in [*ends, None]:
            new = [one for one in self.told if _is_between(one.scn, after, end)]
            told, known = told + new, _known(known, new)
            batches = [
                (schema, part)
                for schema, batch in self.batches
                if (part := _between(batch, after, end)).num_rows
            ]
            truncates = [one for one in self.truncates if _is_between(one[0], after, end)]
            if batches or truncates or end is None:
                steps.append(Step(end, batches, truncates, told, known))
            if batches:
                told = []
            after = after if end is None else end
        return steps

    def _new_versions(self, after: int) -> list[int]:
        """Return where the rows of another version begin, unless that is inside a transaction."""
        found = []
        last: tuple[TableSchema, int] | None = None
        for schema, batch in self.batches:
            rows = _between(batch, after, None)
            if not rows.num_rows:
                continue
            first = rows.column("_scn")[0].as_py()
            if last is not None and last[0] != schema and last[1] < first:
                found.append(first)
            last = schema, rows.column("_scn")[-1].as_py()
        return found


def _known(before: Mapping[int, Numbers], told: Sequence[Told]) -> dict[int, Numbers]:
    """Return the numbers per version once more was said of them."""
    known = dict(before)
    for one in told:
        if one.was:
            known[one.was_id] = one.was
        # Behind it: a column that went and came back as it was is another one, in the same version.
        known[one.schema_id] = one.numbers
    return known


def _is_between(scn: int, after: int, upto: int | None) -> bool:
    return after < scn and (upto is None or scn <= upto)


def _between(batch: pa.RecordBatch, after: int, upto: int | None) -> pa.RecordBatch:
    """Return the rows above one SCN and up to another; a view."""
    scns = batch.column("_scn").to_numpy()
    first = int(scns.searchsorted(after, side="right"))
    last = len(scns) if upto is None else int(scns.searchsorted(upto, side="right"))
    return batch.slice(first, max(last - first, 0))
