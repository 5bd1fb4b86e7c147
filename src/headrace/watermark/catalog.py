"""Which tables are captured, by the source's lasting identity, and what to say and do when that changes.

In: looks at the source's catalog, and what the log itself says of tables. Out: system events, and tables to dump.
Holds the same facts as the state database; a look counts once its events are durable, so a crash repeats events and
loses none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from headrace.model.block import ORIGIN_SELECT, Block, SystemEvent, SystemKind, transaction_index
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook, ReceivedMark
from headrace.state.store import StateStore
from headrace.state.writer import StateWriter
from headrace.watermark.tasks import TaskQueue

__all__ = ["Catalog", "catalog_block", "ends", "forget_catalog", "read_anew"]

_META = "catalog"
_ASTRAY = "astray"

T = TypeVar("T")
Told = tuple[SystemKind, TableId, dict[str, str | bool]]


class Catalog:
    """What was known of the source's catalog when it was last looked at.

    Args:
        store: keeps it across restarts.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.tables: dict[str, CatalogEntry] = {}
        self._schemas: dict[str, str] | None = None
        self._joining: dict[TableId, str] = {}
        self._told_anew: set[str] = set()
        self._superseded: set[str] = set()
        self._heard: set[str] = set()
        self._refused: dict[TableId, str] = {}
        self._outside: set[TableId] = set()
        self._astray: set[str] = set()
        self._asked: set[str] = set()
        self._kept = ""
        self.gone: set[TableId] = set()
        self.reload()

    def reload(self) -> None:
        """Go back to what is durable."""
        text = self._store.get(_META)
        self.tables, self._schemas, self._joining = {}, None, {}
        self._heard = set()
        self._astray, self._asked = set(json.loads(self._store.get(_ASTRAY) or "[]")), set()
        self._kept = text or ""
        if text:
            value = json.loads(text)
            self.tables = {
                identity: CatalogEntry(TableId(schema, name), shape)
                for identity, (schema, name, shape) in value["tables"].items()
            }
            self._schemas = value["schemas"]
            self._joining = {TableId(*name): i for i, name in value["joining"].items()}

    @property
    def begun(self) -> bool:
        """Whether any look was ever worked off."""
        return self._schemas is not None

    @property
    def names(self) -> set[TableId]:
        """The captured tables."""
        return {entry.table for entry in self.tables.values()}

    @property
    def admitted(self) -> frozenset[str]:
        """Identities of the tables that may join: what there was to say of their names was said."""
        return frozenset(self._joining.values())

    def away(self, tables: Collection[TableId]) -> set[TableId]:
        """Return those of the tables that are not captured now: they are gone, or have to join first."""
        return set(tables) - self.names if self.begun else set()

    def has_yet_to_join(self, table: TableId) -> bool:
        """Return whether a table is on its way into the log: what is read of it before may be gone without a word."""
        return table in self._outside and table not in self._refused

    def refusal(self, table: TableId) -> str:
        """Return why a table cannot be captured, empty for any other."""
        return self._refused.get(table, "")

    def forget(self, tables: Iterable[TableId]) -> None:
        """Take tables for strangers, which have to join anew: their changes passed by for a while."""
        gone = set(tables)
        if gone:
            self.tables = {i: entry for i, entry in self.tables.items() if entry.table not in gone}
            self._store.write([self._change()])

    def ask(
        self, selected: Iterable[TableId]
    ) -> tuple[dict[str, CatalogEntry], tuple[TableId, ...], frozenset[str]]:
        """Return what a look that begins now is to compare with, as `CatalogReader.look` takes it.

        Args:
            selected: tables in the log since it began; asked for by the first look only.
        """
        self._heard.clear()
        self._asked = set(self._astray)
        return dict(self.tables), () if self.begun else tuple(selected), self.admitted

    def told(self, look: CatalogLook, was_captured: Callable[[TableId], bool]) -> list[Told]:
        """Return what the system stream has to say about a look.

        Args:
            look: of now.
            was_captured: whether the log holds rows of a table from an earlier life.
        """
        look = self._believed(look)
        told = list(self._schemas_came(look)) if self._schemas is not None else []
        for identity, entry in self.tables.items():
            now = look.tables.get(identity)
            if identity in self._heard or (now is not None and now.table == entry.table):
                continue
            if look.joining.get(identity) == entry.table:
                # It is there, and its changes passed by: it joins anew.
                continue
            payload: dict[str, str | bool] = {"identity": identity}
            if identity in self._superseded:
                payload["superseded"] = True
            if now is None:
                told.append((SystemKind.DROP_TABLE, entry.table, payload))
            else:
                told.append(
                    (SystemKind.RENAME_TABLE, entry.table, payload | {"to": str(now.table)})
                )
        for identity, table in look.joining.items():
            before = self._joining.get(table)
            if identity in self._told_anew or identity == before:
                continue
            if before is not None or was_captured(table):
                # Rows of a former table of this name, or of its own former life, would stay for ever.
                told.append((SystemKind.TRUNCATE, table, {"anew": True}))
        for identity, name in (self._schemas or {}).items():
            if identity not in look.schemas and identity not in self._heard:
                told.append((SystemKind.DROP_SCHEMA, TableId(name, ""), {"identity": identity}))
        return told

    def _schemas_came(self, look: CatalogLook) -> Iterator[Told]:
        known = self._schemas or {}
        for identity, name in look.schemas.items():
            before = known.get(identity)
            if before is None:
                yield SystemKind.CREATE_SCHEMA, TableId(name, ""), {"identity": identity}
            elif before != name:
                payload: dict[str, str | bool] = {"identity": identity, "to": name}
                yield SystemKind.RENAME_SCHEMA, TableId(before, ""), payload

    def _believed(self, look: CatalogLook) -> CatalogLook:
        """Return what a look says of all that the log did not speak of since it was asked for.

        The look may be older than what the log said, and would take it back.
        """
        if not self._heard:
            return look
        return replace(
            look,
            tables=_without(look.tables, self._heard),
            schemas=_without(look.schemas, self._heard),
            joining=_without(look.joining, self._heard),
            joined=look.joined - self._heard,
            restated=look.restated - self._heard,
        )

    def note(self, event: SystemEvent) -> None:
        """Take note of what the log itself said, so that no look says it again or takes it back."""
        identity = event.payload.get("identity")
        self._heard.add(identity or "")
        if event.table in self.names:
            self.gone.add(event.table)
        if event.kind in (SystemKind.DROP_TABLE, SystemKind.RENAME_TABLE):
            self.tables.pop(identity or "", None)
        elif event.kind is SystemKind.TRUNCATE:
            self._told_anew.add(identity or "")
            same = {i for i, entry in self.tables.items() if entry.table == event.table}
            self._superseded |= same - {identity}
        elif self._schemas is None or identity is None:
            return
        elif event.kind is SystemKind.DROP_SCHEMA:
            self._schemas.pop(identity, None)
        elif event.kind is SystemKind.CREATE_SCHEMA:
            self._schemas[identity] = event.table.schema
        elif event.kind is SystemKind.RENAME_SCHEMA:
            self._schemas[identity] = event.payload["to"]

    def note_astray(self, identities: Collection[str]) -> list[Callable[[StateWriter], None]]:
        """Take note of tables that had another name in the log than was known, or whose name another table had.

        The next look tells whether that lasted. Where it did not, the look alone would see nothing.

        Returns:
            What makes it durable, before the source is told that the log was read up to there.
        """
        # A look that began before may be older than the name.
        self._asked -= set(identities)
        if self._astray.issuperset(identities):
            return []
        self._astray.update(identities)
        return [self._astray_change()]

    def _astray_change(self) -> Callable[[StateWriter], None]:
        text = json.dumps(sorted(self._astray))
        return lambda w: w.set(_ASTRAY, text)

    def _without_returned(self, look: CatalogLook) -> CatalogLook:
        """Take tables that were astray, and have their names again, for strangers, in the look as well."""
        back = {
            identity
            for identity in self._asked & self.tables.keys() & look.tables.keys()
            if look.tables[identity].table == self.tables[identity].table
        }
        self.tables = _without(self.tables, back)
        return replace(look, tables=_without(look.tables, back))

    def give_up_gone(self, queue: TaskQueue) -> None:
        """Give up dumps of tables that are no more what they were."""
        for table in sorted(self.gone):
            queue.give_up(table, f"{table} was dropped or renamed.")
        self.gone.clear()

    def work_off(self, look: CatalogLook, queue: TaskQueue) -> list[Callable[[StateWriter], None]]:
        """Queue the dumps that a look asks for; call when its events are durable.

        Returns:
            What makes durable that it was worked off.
        """
        look = self._without_returned(self._believed(look))
        self.give_up_gone(queue)
        # At once: when it has joined, nobody can tell any more that it was away.
        self.forget(self.tables[i].table for i in look.joining.keys() & self.tables.keys())
        for identity in sorted(look.joined):
            queue.add(look.tables[identity].table)
        for identity in sorted(look.restated):
            if identity in self.tables:
                queue.copy_again(self.tables[identity].table)
        for table, reason in look.refused.items():
            if self._refused.get(table) != reason:
                queue.refuse(table, reason)
        for table in self._refused.keys() - look.refused.keys():
            queue.withdraw(table)
        self._refused = dict(look.refused)
        return self._take(look, queue.tables) + self._settle_astray()

    def _settle_astray(self) -> list[Callable[[StateWriter], None]]:
        """Forget about the tables of which a look has told by now whether their names lasted."""
        settled = self._asked - self._heard
        self._asked = set()
        if not settled:
            return []
        self._astray -= settled
        return [self._astray_change()]

    def _take(
        self, look: CatalogLook, captured: Collection[TableId]
    ) -> list[Callable[[StateWriter], None]]:
        """Take a look for what is known now; returns what makes it durable, nothing when nothing is new.

        Args:
            look: whose events are durable.
            captured: tables that the configuration selects. A renamed table is a stranger under its new name.
        """
        known = {i: entry for i, entry in self.tables.items() if i in self._heard}
        for identity, now in look.tables.items():
            before = self.tables.get(identity)
            if now.table in captured and (before is None or before.table == now.table):
                known[identity] = now
        schemas = {i: name for i, name in (self._schemas or {}).items() if i in self._heard}
        self.tables, self._schemas = known, schemas | dict(look.schemas)
        left = {table: i for i, table in look.joining.items() if i not in look.joined}
        self._outside = set(left)
        gone = {t: i for t, i in self._joining.items() if t not in self.names}
        self._joining = gone | left
        self._told_anew &= set(left.values()) | self._heard
        self._superseded &= set(known)
        return [self._change()] if self._render() != self._kept else []

    def _change(self) -> Callable[[StateWriter], None]:
        """Return the change that makes what is known durable."""
        text = self._kept = self._render()
        return lambda w: w.set(_META, text)

    def _render(self) -> str:
        return json.dumps(
            {
                "tables": {i: [*entry.table, entry.shape] for i, entry in self.tables.items()},
                "schemas": self._schemas,
                "joining": {i: list(table) for table, i in self._joining.items()},
            }
        )


def read_anew(look: CatalogLook) -> list[TableId]:
    """Return the tables of which a look asks for a dump."""
    return [look.tables[i].table for i in look.joined | look.restated if i in look.tables]


def ends(event: SystemEvent) -> bool:
    """Return whether a table is no more what it was."""
    anew = event.kind is SystemKind.TRUNCATE and event.payload.get("anew")
    return bool(anew) or event.kind in (SystemKind.DROP_TABLE, SystemKind.RENAME_TABLE)


def _without(found: Mapping[str, T], identities: Collection[str]) -> dict[str, T]:
    return {identity: entry for identity, entry in found.items() if identity not in identities}


def forget_catalog(writer: StateWriter) -> None:
    """Know nothing of the catalog any more; the next look takes the captured tables for those that were known."""
    writer.set(_META, "")
    writer.set(_ASTRAY, "")


def catalog_block(mark: ReceivedMark, told: Sequence[Told]) -> Block:
    """Return the window of what a look has to say, at its mark's own SCN."""
    events = tuple(
        SystemEvent(mark.scn, order, kind, table, dict(payload))
        for order, (kind, table, payload) in enumerate(told)
    )
    index = transaction_index([(mark.scn, mark.commit_us, 0, len(events), ORIGIN_SELECT, 1)])
    return Block(index, (), events, mark.scn)
