"""What one batch means for each table: which stretch of the log, in which version, in how many steps.

In: the change log. Out: values; no Spark, no row is read. A table's steps end between transactions, at most at the
batch's end, and wherever the rules by which its rows are folded change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.changelog.reader import ChangeLogReader
from headrace.changelog.refs import BlockRef
from headrace.lake.widening import can_widen, follows
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import NO_NUMBERS, Numbers, successors, told_numbers
from headrace.registry.file import FileRegistry
from headrace.spark.rows import Versions
from headrace.spark.slices import newest_version, rows_of, versions_of

__all__ = ["Range", "Step", "steps_of", "version_for"]

_OF_TABLES = (
    SystemKind.SCHEMA,
    SystemKind.TRUNCATE,
    SystemKind.DUMP_COMPLETE,
    SystemKind.GAP,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One commit of one table.

    Attributes:
        after_scn: exclusive begin.
        upto_scn: inclusive end; committed as the table's applied SCN.
        schema: version of the rows.
        schema_ids: every version of the table that the stretch holds rows of.
        refs: the blocks that say anything of the table; may hold more at both ends.
        announced: whether a schema event of the stretch names ``schema``.
        numbers: the source's own of the columns of each version that schema events of the range speak of, as they were
            at the end of the stretch.
        truncated: whether the table was truncated in the stretch.
    """

    after_scn: int
    upto_scn: int
    schema: TableSchema
    schema_ids: frozenset[int]
    refs: tuple[BlockRef, ...]
    announced: bool
    truncated: bool
    numbers: Mapping[int, Numbers]

    @property
    def rows(self) -> int:
        """Change rows, about: edges of blocks are not looked at."""
        return rows_of(self.refs, self.schema_ids)

    def committed_rows(self, reader: ChangeLogReader) -> int:
        """Return its change rows exactly: blocks at its edges, of which others have a part, are looked into."""
        count = 0
        for ref in self.refs:
            if self.after_scn < ref.first_scn and ref.last_scn <= self.upto_scn:
                count += rows_of([ref], self.schema_ids)
            else:
                block = reader.load(ref, self.schema_ids)
                count += block.after(self.after_scn).upto(self.upto_scn).rows
        return count

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit beside the version."""
        return self.truncated or self.rows > 0

    def versions(
        self, registry: FileRegistry, schema: TableSchema, *, fitting: bool = False
    ) -> Versions:
        """Return the versions of the rows, each with its columns' names in ``schema``, whose columns are numbered.

        Args:
            registry: of all versions.
            schema: the version to come to.
            fitting: leave out columns whose older values do not fit.
        """
        own = [name for name in schema.names if name not in schema.kept]
        found: dict[int, Mapping[str, str] | None] = {}
        for held in self.schema_ids:
            old = registry.get(held)
            numbers = self.numbers.get(held, NO_NUMBERS)
            names = successors(old.names, own, numbers, schema.numbers)
            if names and fitting:
                names = {n: to for n, to in names.items() if _fits(old, n, schema, to)}
            found[held] = names
        return found


def _fits(old: TableSchema, name: str, new: TableSchema, later: str) -> bool:
    before, after = old.column(name).type, new.column(later).type
    return before == after or can_widen(before, after)


@dataclass(slots=True)
class Range:
    """A stretch of the log, listed once for all tables.

    Attributes:
        after_scn: exclusive begin.
        upto_scn: inclusive end.
        refs: its blocks.
        events: its system events, in order.
    """

    reader: ChangeLogReader
    registry: FileRegistry
    after_scn: int
    upto_scn: int
    refs: list[BlockRef] = field(init=False)
    events: list[SystemEvent] = field(init=False)

    def __post_init__(self) -> None:
        self.refs = list(self.reader.refs(self.after_scn, self.upto_scn))
        self.events = [
            event
            for block in self.reader.read([ref for ref in self.refs if ref.has_system], ())
            for event in block.system
            if self.after_scn < event.scn <= self.upto_scn
        ]

    def tables(self) -> list[TableId]:
        """Return the tables that the range says anything of, in order of first appearance."""
        ids = {schema_id for ref in self.refs for schema_id, _ in ref.tables if schema_id}
        # That a table or namespace went is news only of what is there.
        found = dict.fromkeys(event.table for event in self.events if event.kind in _OF_TABLES)
        found.update(dict.fromkeys(self.registry.get(schema_id).table for schema_id in ids))
        return list(found)


def steps_of(
    part: Range, table: TableId, after_scn: int, max_rows: int, current: TableSchema | None
) -> list[Step]:
    """Return the commits that bring a table from ``after_scn`` to the end of a range.

    Args:
        part: begins at or below ``after_scn``.
        table: the table.
        after_scn: what it has applied.
        max_rows: of one step; one block may hold more.
        current: version that the target has, None when there is no target table.
    """
    refs = [ref for ref in part.refs if ref.last_scn > after_scn]
    events = [event for event in part.events if event.table == table and event.scn > after_scn]
    ids = set(versions_of(refs, part.registry, table))
    if not ids and not any(e.kind in (SystemKind.SCHEMA, SystemKind.TRUNCATE) for e in events):
        return []
    steps = []
    begin = after_scn
    for end in _ends(part, refs, _rule_changes(part.registry, events, current), ids, max_rows):
        if end <= begin:
            continue
        held = [ref for ref in refs if ref.last_scn > begin and ref.first_scn <= end]
        told = [event for event in events if begin < event.scn <= end]
        numbers = _numbers(events, end)
        if step := _step(part, table, held, told, begin, end, current, numbers):
            steps.append(step)
            begin, current = end, step.schema
    return steps


def version_for(
    step: Step, schema_id: int, reader: ChangeLogReader, registry: FileRegistry
) -> TableSchema:
    """Return the version to apply a step in: the step's own, or the target's when that is newer.

    The target is ahead of the rows when a crash came between a change of its columns and the rows behind it.

    Args:
        step: the stretch of the log.
        schema_id: version that the target's columns have, 0 before there are any.
        reader: the log.
        registry: versions of tables.
    """
    if schema_id in (0, step.schema.schema_id):
        return step.schema
    held = registry.get(schema_id)
    if not follows(step.schema, held):
        return step.schema
    if not step.announced:
        return held
    later = Range(reader, registry, step.upto_scn, reader.tail().covered_scn).events
    comes = any(
        event.kind is SystemKind.SCHEMA
        and event.table == held.table
        and int(event.payload["schema_id"]) == schema_id
        for event in later
    )
    return held if comes else step.schema


def _step(
    part: Range,
    table: TableId,
    refs: Sequence[BlockRef],
    events: Sequence[SystemEvent],
    begin: int,
    end: int,
    current: TableSchema | None,
    numbers: Mapping[int, Numbers],
) -> Step | None:
    """Return the step of one stretch, None when it says nothing of the table."""
    ids = frozenset(versions_of(refs, part.registry, table))
    announced = [int(e.payload["schema_id"]) for e in events if e.kind is SystemKind.SCHEMA]
    truncated = any(event.kind is SystemKind.TRUNCATE for event in events)
    schema: TableSchema | None = None
    if len(ids) == 1 and not announced:
        schema = part.registry.get(next(iter(ids)))
    elif ids or announced:
        schema = newest_version(part.reader, part.registry, table, refs, begin, end)
    elif truncated:
        schema = current
    if schema is None:
        return None
    needed = tuple(ref for ref in refs if rows_of([ref], ids) or (truncated and ref.has_system))
    return Step(begin, end, schema, ids, needed, schema.schema_id in announced, truncated, numbers)


def _numbers(events: Sequence[SystemEvent], upto_scn: int) -> dict[int, Numbers]:
    """Return what schema events say of the numbers of columns at an SCN, per version."""
    found: dict[int, Numbers] = {}
    for event in events:
        if event.kind is not SystemKind.SCHEMA:
            continue
        told = told_numbers(event.payload)
        if event.scn <= upto_scn:
            found |= told
        else:
            # What it says of the version before it was so already, also where the two are one.
            found = told | told_numbers(event.payload.get("was") or {}) | found
    return found


def _ends(
    part: Range,
    refs: Sequence[BlockRef],
    breaks: list[int],
    ids: set[int],
    max_rows: int,
) -> Iterator[int]:
    """Yield the ends of a table's steps, ascending; the last is the range's end."""
    rows = 0
    for ref in refs:
        while breaks and breaks[0] < ref.last_scn:
            yield breaks.pop(0)
            rows = 0
        rows += rows_of([ref], ids)
        if rows >= max_rows and ref.ends_complete and ref.last_scn < part.upto_scn:
            yield ref.last_scn
            rows = 0
    yield from (scn for scn in breaks if scn < part.upto_scn)
    yield part.upto_scn


def _rule_changes(
    registry: FileRegistry, events: Sequence[SystemEvent], before: TableSchema | None
) -> list[int]:
    """Return the last SCN before each schema event that brings another key or rule for it, other names, or other types.

    Rows from before a column went, or changed its name or type, are applied while the target has it. One that was
    dropped and came back as it was is another one, in the same version.
    """
    found = []
    known: dict[int, Numbers] = {}
    for event in events:
        if event.kind is not SystemKind.SCHEMA:
            continue
        schema = registry.get(int(event.payload["schema_id"]))
        known |= told_numbers(event.payload.get("was") or {})
        now = told_numbers(event.payload)
        others = any(known.get(version, numbers) != numbers for version, numbers in now.items())
        if others or (
            before
            and (
                (before.key, before.key_check) != (schema.key, schema.key_check)
                or [name for name in schema.names if name in before.names] != before.names
                or not follows(before, schema)
            )
        ):
            found.append(event.scn - 1)
        known |= now
        before = schema
    return found
