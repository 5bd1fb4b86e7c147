"""Every kind of problem that an assessment names, as data: where it is shown, and what it costs to leave it alone.

The kinds that preflight finds have their names from there (`headrace.sources.postgres.preflight` and its neighbours);
description and suggestion come with each finding. docs/assessment.md has the same table, and a test holds both
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["CATALOGUE", "Group", "Kind"]


class Group(Enum):
    """In which list of an assessment a problem stands."""

    CONNECTIVITY = "connectivity"
    """Source or target cannot be reached as the configuration says."""
    FEATURE = "features"
    """Something that was asked for, or that a table has, is not carried over."""
    TRANSFORMATION = "transformationIssues"
    """A setting of columns or rows that does not fit its table."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem.

    Attributes:
        name: short, stable, kebab-case.
        group: where it is shown.
        meaning: what is wrong, in a line.
        impact: what happens when nothing is done.
    """

    name: str
    group: Group
    meaning: str
    impact: str


_NO_START = "The replicator does not start."
_NO_TABLE_START = "The replicator does not start while the table is captured."
_WAITS = "The table waits with this error at its first batch; the others go on."
_LEFT_OUT = "The column is not in the target."

_SERVER = (
    ("server-too-old", "the server is older than any that is supported", _NO_START),
    (
        "server-unknown-version",
        "the server is newer than any that was tested",
        "Nothing is known to be wrong; what the new version changed in the log stops the capture by name.",
    ),
    ("standby", "watermarks cannot be written to a standby", _NO_START),
    ("wal-level", "the log carries no rows", _NO_START),
    (
        "encoding-unknown",
        "the database does not say how its text is encoded",
        "The first text that is not UTF-8 stops the capture.",
    ),
    ("no-free-slot", "all replication slots are in use", _NO_START),
    ("no-free-wal-sender", "all WAL senders are in use", _NO_START),
    ("role-not-replication", "the role may not read the log", _NO_START),
    ("slot-missing", "the slot that the configuration names does not exist", _NO_START),
    ("slot-wrong-plugin", "the named slot speaks another protocol", _NO_START),
    ("slot-wrong-database", "the named slot belongs to another database", _NO_START),
    (
        "slot-two-phase",
        "the named slot hands transactions out before they are committed",
        _NO_START,
    ),
    (
        "slot-active",
        "somebody reads the slot",
        "The capture waits until the other reader is gone.",
    ),
    (
        "slot-lost",
        "the server threw away the log that the slot stands for",
        "Changes since then are lost to the log; the tables are compared and mended by a resync.",
    ),
    (
        "failover-unsupported",
        "the server keeps no slots on standbys",
        "After a fail-over the tables have to be compared and mended.",
    ),
    (
        "slot-not-failover",
        "standbys do not keep this slot",
        "After a fail-over the tables have to be compared and mended.",
    ),
    ("publication-missing", "the named publication does not exist", _NO_START),
    (
        "publication-actions",
        "the named publication leaves kinds of change out",
        _NO_START,
    ),
    (
        "publication-not-via-root",
        "the named publication publishes partitions under their own names",
        _NO_START,
    ),
    ("may-not-create-publication", "the role may not make a publication", _NO_START),
    ("publication-foreign-owner", "our publication belongs to another role", _NO_START),
    ("may-not-emit-messages", "the role may not write watermarks", _NO_START),
    ("watermark-table-missing", "the table of watermarks does not exist", _NO_START),
    ("watermark-table-not-writable", "the role may not write watermarks", _NO_START),
    (
        "watermark-table-not-published",
        "watermarks do not come back through the named publication",
        _NO_START,
    ),
    ("ddl-trigger-missing", "migrations are to be told by triggers that are not there", _NO_START),
    ("no-tables", "no table matches", _NO_START),
    ("server-unknown", "the server is of a kind that is not read", _NO_START),
    ("log-bin", "the server keeps no binary log", _NO_START),
    ("binlog-format", "the log has statements in place of rows", _NO_START),
    ("binlog-row-metadata", "the log does not name columns and keys", _NO_START),
    ("binlog-row-image", "the log leaves values out", _NO_START),
    ("binlog-filter", "the log leaves out databases that are captured, or watermarks", _NO_START),
    (
        "binlog-filter-by-use",
        "the log leaves out databases, and migrations that are made while one of them is in use",
        "A migration that is made so is not in the target.",
    ),
    ("gtid-mode", "transactions have no global ids", _NO_START),
    ("enforce-gtid-consistency", "some statements have no single global id", _NO_START),
    (
        "binlog-order-commits",
        "commits become visible in another order than that of the log",
        "More rows of a dump yield to changes, and are read again.",
    ),
    (
        "replica-preserve-commit-order",
        "a replica commits in another order than the server that it follows",
        "Transactions come in the replica's order.",
    ),
    ("mysql56-temporal-format", "the log has times in a form that is not decoded", _NO_START),
    (
        "short-retention",
        "the server removes its log within a day",
        "Whoever is away for longer has to compare and mend the tables by a resync.",
    ),
    ("max-prepared-stmt-count", "the server prepares no statements, as chunks are read", _NO_START),
    ("no-binlog-monitor", "the user may not ask where the log is", _NO_START),
    ("no-replication-slave", "the user may not read the log", _NO_START),
    (
        "no-watermark-row",
        "the table of watermarks, or its row for the replicator, does not exist",
        "Capture makes both when it starts, where the user may; else it does not start.",
    ),
    (
        "feed-unreadable",
        "the folder of changes, or its description of tables, does not read",
        _NO_START,
    ),
    ("may-not-make-triggers", "the role may not make the triggers that are missing", _NO_START),
    ("change-tables-not-usable", "the role may not use the change tables", _NO_START),
    (
        "read-only",
        "nobody writes to the server but a replication, which fires no trigger",
        _NO_START,
    ),
    ("several-writers", "servers of a cluster number changes on their own", _NO_START),
    ("no-process-right", "the user may not see which tables were emptied", _NO_START),
)

_TABLES = (
    ("no-key", "no column tells rows apart", _NO_TABLE_START),
    (
        "deferrable-key",
        "the key is checked too late to tell rows apart in the log",
        _NO_TABLE_START,
    ),
    (
        "partitioned-table",
        "triggers do not fire for a partitioned table as a whole",
        _NO_TABLE_START,
    ),
    (
        "foreign-key-acts",
        "a foreign key changes rows, which no log shows and no trigger",
        _NO_TABLE_START,
    ),
    ("no-trigger-right", "the user may neither make triggers nor see them", _NO_TABLE_START),
    ("keyless-constrained", "updates that did not happen look like others", _NO_TABLE_START),
    ("queue-not-removable", "delivered rows of a queue cannot be removed", _NO_TABLE_START),
    ("nullable-key", "what would be a key lets null in", _NO_TABLE_START),
    ("replica-identity-nothing", "old rows are not in the log", _NO_TABLE_START),
    ("replica-identity-index-missing", "the index that tells rows apart is gone", _NO_TABLE_START),
    ("generated-identity", "a computed column tells rows apart", _NO_TABLE_START),
    (
        "partitioned-identity",
        "later partitions would have another identity than their root",
        _NO_TABLE_START,
    ),
    ("partition-identity", "partitions have another identity than their root", _NO_TABLE_START),
    ("unlogged-table", "changes are not in the log", _NO_TABLE_START),
    ("foreign-table", "changes are in the log of another server", _NO_TABLE_START),
    ("no-schema-usage", "the role may not use the schema", _NO_TABLE_START),
    ("no-select", "the role may not read the table", _NO_TABLE_START),
    ("row-security", "policies hide rows from the role", _NO_TABLE_START),
    ("not-owner", "only the owner may publish the table", _NO_TABLE_START),
    ("table-not-published", "the named publication leaves the table out", _NO_TABLE_START),
    ("row-filter", "the named publication leaves rows out", _NO_TABLE_START),
    ("column-list", "the named publication leaves columns out", _LEFT_OUT),
    (
        "unknown-column",
        "the configuration names a column that is not there",
        "The name is without effect until a column of that name comes.",
    ),
    (
        "key-column-kept",
        "a column of the key is to be left out",
        "The column is captured all the same.",
    ),
    (
        "columns-left-out-late",
        "the server cannot leave the columns out",
        "The columns leave the source, and are dropped before they are kept.",
    ),
    (
        "generated-columns",
        "generated columns are not in the log",
        "The columns are not in the target.",
    ),
    (
        "partition-maintenance",
        "what is done to whole partitions is not in the log",
        "Rows of attached partitions are missing until a dump, those of partitions that went stay until a resync.",
    ),
    ("engine", "no snapshot and no rollback covers the table's engine", _NO_TABLE_START),
    ("system-versioned", "the log has the table's own history as further rows", _NO_TABLE_START),
    ("column-not-decoded", "a type or a character set is not decoded", _NO_TABLE_START),
    (
        "schema-name-dotted",
        "the table's name is that of another schema's table too",
        _NO_TABLE_START,
    ),
    ("column-name-taken", "a column has a name that headrace needs for itself", _NO_TABLE_START),
    (
        "keyless",
        "the table has no primary key",
        "The copy is a multiset of rows, and the first one is read in one piece.",
    ),
    (
        "keyless-refused",
        "the table has no primary key, and no read of it says what it has seen",
        _NO_TABLE_START,
    ),
    (
        "no-range-scan",
        "chunks cannot be read along the key's index",
        "The first copy sorts or reads the whole table for every chunk.",
    ),
)

_OURS = (
    Kind(
        "statistics-missing",
        Group.FEATURE,
        "the catalog has never counted the table",
        "The estimates leave the table out; capture itself does not need them.",
    ),
    Kind(
        "column-name-refused",
        Group.FEATURE,
        "the target takes no column of this name",
        _WAITS,
    ),
    Kind(
        "column-names-collide",
        Group.FEATURE,
        "the target takes two names for one",
        _WAITS,
    ),
    Kind("table-name-refused", Group.FEATURE, "the target takes no table of this name", _WAITS),
    Kind(
        "mode-without-key",
        Group.FEATURE,
        "the mode needs a key that the table does not have",
        _WAITS,
    ),
    Kind(
        "mode-column-taken",
        Group.FEATURE,
        "a column has the name of one that the mode adds",
        _WAITS,
    ),
    Kind(
        "target-table-taken",
        Group.FEATURE,
        "another table is in the place of the target table",
        _WAITS,
    ),
    Kind(
        "setting-unsupported",
        Group.FEATURE,
        "the target cannot do what a setting asks for",
        _NO_START,
    ),
    Kind(
        "table-unmatched",
        Group.TRANSFORMATION,
        "settings name a table that is not captured",
        "The settings are without effect until such a table comes.",
    ),
    Kind(
        "transform-column-unknown",
        Group.TRANSFORMATION,
        "a setting names a column that is not there",
        _WAITS,
    ),
    Kind(
        "transform-key-column",
        Group.TRANSFORMATION,
        "a setting would take away or change a column of the key",
        _WAITS,
    ),
    Kind(
        "transform-left-out",
        Group.TRANSFORMATION,
        "a setting names a column that another one leaves out",
        _WAITS,
    ),
    Kind(
        "transform-names-collide",
        Group.TRANSFORMATION,
        "settings give two columns one name",
        _WAITS,
    ),
    Kind(
        "expression-unreadable",
        Group.TRANSFORMATION,
        "an expression is no Spark SQL",
        _WAITS,
    ),
    Kind(
        "expression-column-unknown",
        Group.TRANSFORMATION,
        "an expression names a column that is not there",
        _WAITS,
    ),
    Kind(
        "expression-unfit",
        Group.TRANSFORMATION,
        "an expression does not give one value for each row, the same at each replay",
        _WAITS,
    ),
    Kind(
        "partition-column-unfit",
        Group.TRANSFORMATION,
        "the target table cannot be partitioned like that",
        _WAITS,
    ),
    Kind(
        "directive-unknown",
        Group.TRANSFORMATION,
        "a directive of a transformation is none that is known",
        "The transformation is not made, so nothing starts.",
    ),
    Kind(
        "source-unreachable",
        Group.CONNECTIVITY,
        "nobody answers at the source's host and port",
        _NO_START,
    ),
    Kind("source-host-unknown", Group.CONNECTIVITY, "the source's host has no address", _NO_START),
    Kind(
        "source-database-unknown",
        Group.CONNECTIVITY,
        "the source's server has no such database",
        _NO_START,
    ),
    Kind(
        "source-login-refused",
        Group.CONNECTIVITY,
        "the source's server refuses role or password",
        _NO_START,
    ),
    Kind(
        "source-certificate-refused",
        Group.CONNECTIVITY,
        "the connection to the source is not as safe as was asked",
        _NO_START,
    ),
    Kind("source-failed", Group.CONNECTIVITY, "the source refused a question", _NO_START),
    Kind("no-relay", Group.CONNECTIVITY, "no relay of the source answers", _NO_START),
    Kind("target-unreachable", Group.CONNECTIVITY, "nobody answers at the target", _NO_START),
    Kind("target-host-unknown", Group.CONNECTIVITY, "the target's host has no address", _NO_START),
    Kind(
        "target-database-unknown",
        Group.CONNECTIVITY,
        "the target's server has no such database",
        _NO_START,
    ),
    Kind(
        "target-login-refused",
        Group.CONNECTIVITY,
        "the target's server refuses role or password",
        _NO_START,
    ),
    Kind(
        "target-certificate-refused",
        Group.CONNECTIVITY,
        "the connection to the target is not as safe as was asked",
        _NO_START,
    ),
    Kind("target-failed", Group.CONNECTIVITY, "the target cannot be opened", _NO_START),
    Kind(
        "target-server-too-old",
        Group.CONNECTIVITY,
        "the target's server is older than any that is supported",
        _NO_START,
    ),
    Kind(
        "target-may-not-create",
        Group.CONNECTIVITY,
        "the role may not make schemas at the target",
        "Tables of schemas that are not there wait with this error.",
    ),
    Kind(
        "target-not-writable",
        Group.CONNECTIVITY,
        "the target's folder cannot be made or written",
        _NO_START,
    ),
    Kind(
        "state-not-writable",
        Group.CONNECTIVITY,
        "the folder of the replicator's state cannot be made or written",
        _NO_START,
    ),
    Kind(
        "target-package-missing",
        Group.CONNECTIVITY,
        "a Python package that the target needs is not installed",
        _NO_START,
    ),
    Kind("store-refused", Group.CONNECTIVITY, "the object store refuses us", _NO_START),
    Kind("store-unavailable", Group.CONNECTIVITY, "the object store gives no answer", _NO_START),
    Kind(
        "store-unfit",
        Group.CONNECTIVITY,
        "the object store lets a commit be written over",
        _NO_START,
    ),
    Kind(
        "secret-unresolved",
        Group.CONNECTIVITY,
        "a secret is named that is not in the environment",
        _NO_START,
    ),
    Kind(
        "macro-unresolved",
        Group.CONNECTIVITY,
        "a reference is written that nobody resolves",
        _NO_START,
    ),
    Kind("configuration", Group.FEATURE, "the configuration does not read", _NO_START),
    Kind("plugin-unknown", Group.FEATURE, "there is no source or target of this name", _NO_START),
    Kind("plugin-type-unknown", Group.FEATURE, "a stage is neither source nor target", _NO_START),
    Kind(
        "artifact-ignored",
        Group.FEATURE,
        "another artifact is named than the plugin's own",
        "headrace's own plugin of this name and this version does the work.",
    ),
    Kind("stages-unfit", Group.FEATURE, "there is not one source and one target", _NO_START),
    Kind(
        "connections-unfit", Group.FEATURE, "the source is not connected to the target", _NO_START
    ),
    Kind(
        "property-unknown",
        Group.FEATURE,
        "the plugin has no such property",
        "The property is without effect.",
    ),
    Kind(
        "field-unknown",
        Group.FEATURE,
        "the configuration has no such field",
        "The field is without effect.",
    ),
    Kind(
        "field-unsupported",
        Group.FEATURE,
        "a field asks for what headrace has no counterpart of",
        "The field is without effect.",
    ),
    Kind(
        "name-changed",
        Group.FEATURE,
        "the name is none that a replicator can have",
        "The replicator goes by the other name, also in its state and at the target.",
    ),
    Kind(
        "secret-in-clear",
        Group.FEATURE,
        "a secret is written out",
        "Whoever reads the configuration reads the secret.",
    ),
    Kind(
        "secret-names-collide",
        Group.CONNECTIVITY,
        "two secrets have one name in the environment",
        "Both are taken from one variable.",
    ),
    Kind(
        "operations-blocked",
        Group.FEATURE,
        "operations are blocked that headrace always carries over",
        "The target would have what it is not to have, so nothing starts.",
    ),
    Kind(
        "existing-rows-wanted",
        Group.FEATURE,
        "rows that are there already are to be left out",
        "The target would have what it is not to have, so nothing starts.",
    ),
    Kind(
        "table-of-another-database",
        Group.FEATURE,
        "a table is listed that lies in another database than the source's",
        "The table is not captured, so nothing starts.",
    ),
)

CATALOGUE: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(Kind(name, Group.FEATURE, *said) for name, *said in (*_SERVER, *_TABLES)),
        *_OURS,
    )
}
"""Every kind by its name, in the order of the documents."""
