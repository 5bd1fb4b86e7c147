"""Whether one table can be captured, from its catalog facts alone: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import SourceError
from headrace.model.schema import KeyCheck, TableId
from headrace.sources.base import Finding, Severity
from headrace.sources.naming import unnameable
from headrace.sources.postgres.catalog import TableFacts
from headrace.sources.postgres.connection import quote
from headrace.sources.postgres.publication import PublicationFacts
from headrace.sources.postgres.published import GENERATED_VERSION
from headrace.sources.postgres.settings import ColumnChoice
from headrace.sources.taken import taken

__all__ = ["check_table", "misread", "privileges", "reads_as"]

# Replica identities that a root's leaves may have, by the root's own. Whole old rows hold every key.
_FITTING = {"d": "df", "f": "f"}


def check_table(
    facts: TableFacts,
    *,
    version: int,
    role: str,
    privileged: bool,
    adopted: PublicationFacts | None,
    owns_publication: bool,
    choice: ColumnChoice | None = None,
) -> Iterator[Finding]:
    """Yield every finding about one table.

    Args:
        facts: what the catalog says.
        version: the server's major version.
        role: the role that we are.
        privileged: whether it is a superuser.
        adopted: the publication that the configuration names, None when it is ours or missing.
        owns_publication: whether the publication is ours to make, which takes the tables' owner.
        choice: which of its columns the configuration wants, None for all.
    """
    name = str(facts.table)
    sql = f"{quote(facts.table.schema)}.{quote(facts.table.name)}"
    yield from unnameable(facts.table)
    if unloggable := _unloggable(facts):
        yield Finding(
            unloggable[0],
            f"{name} is {unloggable[1]}: its changes are not in the log.",
            f"{unloggable[2]} Or exclude {name}.".replace("{table}", sql),
            table=name,
        )
        return
    yield from _identity(facts, name, sql)
    yield from _generated_identity(facts, adopted, version, name, sql)
    if facts.partitioned:
        yield from _partitions(facts, name, sql)
    yield from privileges(facts, name, sql, role)
    if owns_publication and not (facts.owned or privileged):
        yield Finding(
            "not-owner",
            f"Role {role} does not own {name}, so it cannot publish it.",
            "Let an administrator make publication and slot and name both in the configuration; or "
            f"GRANT the owner of {sql} TO {quote(role)}.",
            table=name,
        )
    if adopted is not None:
        yield from _published(facts, adopted, name, sql)
    if choice is not None:
        yield from _columns(facts, choice, name)
    yield from _taken(facts, adopted, choice, name, sql)
    yield from _notes(facts, name)


def _unloggable(facts: TableFacts) -> tuple[str, str, str] | None:
    if facts.kind == "f":
        return "foreign-table", "a foreign table", "Capture it where it lives."
    if facts.persistence == "u":
        return "unlogged-table", "unlogged", "ALTER TABLE {table} SET LOGGED;"
    return None


def _identity(facts: TableFacts, name: str, sql: str) -> Iterator[Finding]:
    """Judge the replica identity: without one, UPDATEs of a published table fail at the source."""
    full = f"ALTER TABLE {sql} REPLICA IDENTITY FULL; or exclude {name}."
    identity = facts.identity
    if identity.letter == "n":
        yield Finding(
            "replica-identity-nothing",
            f"{name} has REPLICA IDENTITY NOTHING: its updates and deletes would fail or be lost.",
            f"ALTER TABLE {sql} REPLICA IDENTITY DEFAULT; (with a primary key) or " + full,
            table=name,
        )
    elif identity.letter == "d" and identity.check is KeyCheck.DEFERRED:
        yield Finding(
            "deferrable-key",
            f"{name} has a deferrable primary key, which cannot tell rows apart in the log: once "
            "published, its UPDATEs would fail.",
            full,
            table=name,
        )
    elif identity.letter == "i" and not identity.key:
        yield Finding(
            "replica-identity-index-missing",
            f"{name} has an index as replica identity that was dropped or is invalid.",
            f"ALTER TABLE {sql} REPLICA IDENTITY DEFAULT; (with a primary key) or " + full,
            table=name,
        )
    elif identity.letter == "d" and not identity.key:
        yield _no_key(facts, name, sql, full)
    elif identity.nullable:
        yield Finding(
            "nullable-key",
            f"{name} is told apart by {', '.join(identity.nullable)}, which may be null where NOT NULL "
            "was never validated: such rows have no key.",
            f"ALTER TABLE {sql} VALIDATE CONSTRAINT …; or " + full,
            table=name,
        )


def _generated_identity(
    facts: TableFacts, adopted: PublicationFacts | None, version: int, name: str, sql: str
) -> Iterator[Finding]:
    """Judge an identity by columns that are not in the log: from 18 on UPDATEs fail, before, old rows lack them.

    Under FULL every column belongs to the identity; before 18 the computed ones are just left out there.
    """
    entry = adopted.tables.get(facts.table) if adopted is not None else None
    told = (entry.columns if entry is not None else None) or frozenset()
    hidden = {a.name for a in facts.attributes if a.generated and a.name not in told}
    full = facts.identity.letter == "f"
    if not full:
        hidden &= set(facts.identity.key)
    elif version < GENERATED_VERSION:
        return
    if hidden:
        yield Finding(
            "generated-identity",
            f"The replica identity of {name} holds generated columns, which are not in the log: "
            f"{', '.join(sorted(hidden))}. Once published, its UPDATEs and DELETEs would fail from PostgreSQL 18 "
            "on, and rows would be taken for one another before.",
            (
                f"ALTER TABLE {sql} REPLICA IDENTITY DEFAULT; (with a primary key)"
                if full
                else f"ALTER TABLE {sql} REPLICA IDENTITY USING INDEX …; of plain columns"
            )
            + f" or exclude {name}.",
            table=name,
        )


def _no_key(facts: TableFacts, name: str, sql: str, full: str) -> Finding:
    """Name what comes nearest to a key: a unique index, or one that only null keeps from being one."""
    usable = [u for u in facts.unique if not u.nullable and not facts.partitioned]
    if facts.unique and not usable and not facts.partitioned:
        index = min(facts.unique, key=lambda u: len(u.nullable))
        not_null = ", ".join(f"ALTER {quote(column)} SET NOT NULL" for column in index.nullable)
        return Finding(
            "nullable-key",
            f"{name} has no primary key, and its unique index {index.name} lets "
            f"{', '.join(index.nullable)} be null: rows with null there are not told apart.",
            f"ALTER TABLE {sql} {not_null}; ALTER TABLE {sql} REPLICA IDENTITY USING INDEX "
            f"{quote(index.name)}; or " + full,
            table=name,
        )
    remedy = (
        f"REPLICA IDENTITY USING INDEX {quote(usable[0].name)}" if usable else "ADD PRIMARY KEY (…)"
    )
    return Finding(
        "no-key",
        f"{name} has no primary key: once published, its UPDATEs and DELETEs would fail.",
        f"ALTER TABLE {sql} {remedy}; or " + full,
        table=name,
    )


def _partitions(facts: TableFacts, name: str, sql: str) -> Iterator[Finding]:
    """Judge partitions: old rows follow the partition's identity and are labelled with the root's."""
    if facts.unlogged:
        yield Finding(
            "unlogged-table",
            f"Partitions of {name} are unlogged: their changes are not in the log: {', '.join(facts.unlogged)}.",
            " ".join(f"ALTER TABLE {leaf} SET LOGGED;" for leaf in facts.unlogged)
            + f" Or exclude {name}.",
            table=name,
        )
    if facts.foreign:
        yield Finding(
            "foreign-table",
            f"Partitions of {name} are foreign tables: their changes are not in the log: {', '.join(facts.foreign)}.",
            f"Detach them; or exclude {name}.",
            table=name,
        )
    identity = facts.identity
    if identity.letter == "i" or (identity.letter == "f" and identity.check is KeyCheck.IMMEDIATE):
        yield Finding(
            "partitioned-identity",
            f"{name} is partitioned and its replica identity is not its primary key: a partition "
            "made later has another one, and its old rows would be misread.",
            f"ALTER TABLE {sql} REPLICA IDENTITY DEFAULT; (with a primary key) or exclude {name}.",
            table=name,
        )
        return
    fitting = _FITTING.get(identity.letter, "")
    others = [leaf for leaf, letter in facts.leaves if letter not in fitting]
    if others and fitting:
        yield Finding(
            "partition-identity",
            f"Partitions of {name} {_other_identity(name, others)}.",
            _same_identity(identity.letter, others),
            table=name,
        )


def _other_identity(name: str, others: Sequence[str]) -> str:
    return f"have another replica identity than {name} itself: {', '.join(others)}"


def _same_identity(letter: str, others: Sequence[str]) -> str:
    """Return the statements that give partitions the identity of their root."""
    word = "FULL" if letter == "f" else "DEFAULT"
    return " ".join(f"ALTER TABLE {leaf} REPLICA IDENTITY {word};" for leaf in others)


def reads_as(root: str, leaf: str) -> bool:
    """Return whether old rows of a leaf are read right by its root's replica identity, or else are refused by name.

    A leaf that is made under a root with FULL has DEFAULT until somebody alters it. Its old keys are those of the
    root's primary key; without one its updates fail at the source. So nothing is lost meanwhile.
    """
    return leaf in _FITTING.get(root, "") or (root, leaf) == ("f", "d")


def misread(table: TableId, letter: str, leaves: Sequence[TableId]) -> SourceError:
    """Return why a captured table cannot go on whose partitions are told by another identity than its own.

    Args:
        table: the root.
        letter: its own replica identity.
        leaves: partitions that have another one.
    """
    others = [str(leaf) for leaf in leaves]
    cure = f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT;"
    if letter in _FITTING:
        cure = _same_identity(letter, others)
    return SourceError(
        f"Partitions of {table} by now {_other_identity(str(table), others)}. Their old rows are misread.",
        next_step=f"{cure} Or exclude {table}. Then run `headrace resync FILE`, which compares the tables and "
        "repairs what differs.",
    )


def privileges(facts: TableFacts, name: str, sql: str, role: str) -> Iterator[Finding]:
    """Yield what keeps a role from reading a table.

    Args:
        facts: what the catalog says.
        name: of the table.
        sql: the same, quoted.
        role: the role that we are.
    """
    if not facts.schema_usable:
        yield Finding(
            "no-schema-usage",
            f"Role {role} may not use schema {facts.table.schema}.",
            f"GRANT USAGE ON SCHEMA {quote(facts.table.schema)} TO {quote(role)};",
            table=name,
        )
    if not facts.readable:
        yield Finding(
            "no-select",
            f"Role {role} may not read {name}.",
            f"GRANT SELECT ON {sql} TO {quote(role)};",
            table=name,
        )
    if facts.row_security:
        yield Finding(
            "row-security",
            f"Row-level security hides rows of {name} from role {role}.",
            f"ALTER ROLE {quote(role)} BYPASSRLS; or exclude {name}.",
            table=name,
        )


def _published(
    facts: TableFacts, publication: PublicationFacts, name: str, sql: str
) -> Iterator[Finding]:
    entry = publication.tables.get(facts.table)
    if entry is None:
        yield Finding(
            "table-not-published",
            f"{name} is not in publication {publication.name}.",
            f"ALTER PUBLICATION {quote(publication.name)} ADD TABLE {sql}; or exclude {name}.",
            table=name,
        )
        return
    if entry.filtered:
        yield Finding(
            "row-filter",
            f"Publication {publication.name} has a row filter on {name}: dump and log would differ.",
            f"ALTER PUBLICATION {quote(publication.name)} SET TABLE … without WHERE for {sql}.",
            table=name,
        )
    left_out = [a.name for a in facts.published if a.name not in (entry.columns or ())]
    if entry.columns is not None and left_out:
        yield Finding(
            "column-list",
            f"Publication {publication.name} publishes only some columns of {name}; "
            f"left out: {', '.join(left_out)}.",
            "Nothing to do if that is meant: the replica has the published columns only.",
            Severity.WARNING,
            table=name,
        )


def _taken(
    facts: TableFacts,
    publication: PublicationFacts | None,
    choice: ColumnChoice | None,
    name: str,
    sql: str,
) -> list[Finding]:
    """Find captured columns that have a name of ours; those that a list leaves out never come."""
    key = facts.identity.key
    entry = publication.tables.get(facts.table) if publication is not None else None
    names = {a.name for a in facts.published}
    if entry is not None and entry.columns is not None:
        names = set(entry.columns)
    if choice is not None:
        names = {n for n in names if choice.keeps(n) or n in key}
    return taken(
        name,
        names,
        key,
        f"Leave out by source.columns those that are not in the key; or ALTER TABLE {sql} RENAME COLUMN … TO …; "
        f"or exclude {name}.",
    )


def _columns(facts: TableFacts, choice: ColumnChoice, name: str) -> Iterator[Finding]:
    named = choice.include | choice.exclude
    if unknown := sorted(named - {a.name for a in facts.attributes}):
        yield Finding(
            "unknown-column",
            f"source.columns names columns that {name} does not have: {', '.join(unknown)}.",
            "Correct source.columns.",
            Severity.WARNING,
            table=name,
        )
    if kept := sorted(choice.exclude & set(facts.identity.key)):
        yield Finding(
            "key-column-kept",
            f"source.columns leaves out columns of the key of {name}, which are captured all the "
            f"same: {', '.join(kept)}.",
            "Take them out of source.columns; without the key no row can be told from another.",
            Severity.WARNING,
            table=name,
        )
    if facts.identity.letter == "f":
        yield Finding(
            "columns-left-out-late",
            f"{name} has REPLICA IDENTITY FULL, so its publication cannot leave columns out: they "
            "come to headrace, which drops them.",
            "Nothing to do if that is good enough; else give it a primary key and REPLICA IDENTITY DEFAULT.",
            Severity.WARNING,
            table=name,
        )


def _notes(facts: TableFacts, name: str) -> Iterator[Finding]:
    generated = [a.name for a in facts.attributes if a.generated]
    if generated:
        yield Finding(
            "generated-columns",
            f"{name}: generated columns are not in the log and not in the replica: "
            f"{', '.join(generated)}.",
            "Compute them in a view over the replica.",
            Severity.WARNING,
            table=name,
        )
    if facts.partitioned:
        yield Finding(
            "partition-maintenance",
            f"{name} is partitioned: ATTACH, DETACH and DROP of a partition and TRUNCATE of one "
            "partition are not in the log.",
            f"After ATTACH: headrace dump start FILE --table {name}. After the others, whose rows a dump would leave: "
            "headrace resync FILE --force, which compares the tables and repairs what differs.",
            Severity.WARNING,
            table=name,
        )
