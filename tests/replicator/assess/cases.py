"""A set-up for each kind of problem that SQL and a configuration alone can make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.model.schema import TableId
from headrace.sources.trigger.postgres.objects import create_objects, create_triggers

ERROR, WARNING = "ERROR", "WARNING"

T = "CREATE TABLE t (id int PRIMARY KEY, v text)"
ROLE = "ALTER ROLE plain REPLICATION"
TABLE = "public.t"


@dataclass(frozen=True)
class Case:
    """One kind of problem.

    Attributes:
        kind: of the problem.
        sql: makes it, in a database of its own.
        doc: sections of the configuration; those of ``source`` are put over the usual ones.
        severity: that it has.
        table: that it is about.
        column: likewise.
        says: what its description or its suggestion holds.
        role: whether the role of the configuration is one that may nothing.
        undo: takes back what lies outside the database.
        since: oldest server that can have it, 0 for all.
    """

    kind: str
    sql: tuple[str, ...] = (T,)
    doc: dict[str, Any] = field(default_factory=dict)
    severity: str = ERROR
    table: str = ""
    column: str = ""
    says: str = ""
    role: bool = False
    undo: tuple[str, ...] = ()
    since: int = 0


def of_table(kind: str, *sql: str, says: str = "", **more: Any) -> Case:
    """Return a case about the table ``t``."""
    return Case(kind, sql, says=says, table=TABLE, **more)


def set_up(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a configuration with settings of the table ``t``."""
    return {"tables": {TABLE: settings}, **more}


SLOT = "SELECT pg_create_{}_replication_slot('assessed'{})"
DROP_SLOT = "SELECT pg_drop_replication_slot('assessed')"
PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
)

TRIGGER = {"source": {"type": "trigger"}}

CASES = (
    # -- triggers in the place of a log
    Case("may-not-make-triggers", doc=TRIGGER, role=True, says="headrace source triggers show"),
    Case(
        "change-tables-not-usable",
        (
            T,
            "GRANT SELECT ON t TO plain",
            *create_objects(),
            *create_triggers(TableId("public", "t")),
        ),
        TRIGGER,
        role=True,
        says="GRANT USAGE ON SCHEMA headrace TO",
    ),
    of_table("partitioned-table", *PARTED, doc=TRIGGER, says="partitions are then captured"),
    # -- the server, slot and publication
    Case("no-tables", (), says="public.*"),
    Case("role-not-replication", role=True, says='ALTER ROLE "plain" REPLICATION;'),
    Case("may-not-create-publication", (T, ROLE), role=True, says="GRANT CREATE ON DATABASE"),
    Case(
        "publication-foreign-owner",
        (T, ROLE, "CREATE PUBLICATION headrace_shop"),
        role=True,
        says="OWNER TO",
    ),
    Case("slot-missing", doc={"source": {"slot": "nowhere"}}, says="pg_create_logical"),
    Case(
        "slot-wrong-plugin",
        (T, SLOT.format("physical", "")),
        {"source": {"slot": "assessed"}},
        undo=(DROP_SLOT,),
    ),
    Case(
        "slot-two-phase",
        (T, SLOT.format("logical", ", 'pgoutput', false, true")),
        {"source": {"slot": "assessed"}},
        says="PREPARE TRANSACTION",
    ),
    Case(
        "slot-not-failover",
        (T, SLOT.format("logical", ", 'pgoutput'")),
        {"source": {"slot": "assessed", "failover": True}},
        WARNING,
        says="ALTER_REPLICATION_SLOT",
        since=17,
    ),
    Case("publication-missing", doc={"source": {"publication": "nowhere"}}),
    Case(
        "publication-actions",
        (T, "CREATE PUBLICATION theirs FOR TABLE t WITH (publish = 'insert')"),
        {"source": {"publication": "theirs"}},
        says="ALTER PUBLICATION",
    ),
    Case(
        "publication-not-via-root",
        (*PARTED, "CREATE PUBLICATION theirs FOR TABLE t"),
        {"source": {"publication": "theirs"}},
        says="publish_via_partition_root = true",
    ),
    Case("ddl-trigger-missing", doc={"source": {"ddl": "trigger"}}, says="CREATE EVENT TRIGGER"),
    Case(
        "watermark-table-missing",
        (T, ROLE),
        {"source": {"watermark": "table"}},
        role=True,
        says="CREATE TABLE headrace.watermarks",
    ),
    Case(
        "watermark-table-not-writable",
        (T, ROLE, "CREATE SCHEMA headrace", "CREATE TABLE headrace.watermarks (id int)"),
        {"source": {"watermark": "table"}},
        role=True,
        says="GRANT SELECT, UPDATE",
    ),
    Case(
        "watermark-table-not-published",
        (
            T,
            "CREATE SCHEMA headrace",
            "CREATE TABLE headrace.watermarks (id int)",
            "CREATE PUBLICATION theirs FOR TABLE t",
        ),
        {"source": {"watermark": "table", "publication": "theirs"}},
        says="ADD TABLE headrace.watermarks",
    ),
    # -- tables
    of_table("no-key", "CREATE TABLE t (v int)", says="REPLICA IDENTITY FULL"),
    of_table("deferrable-key", "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)"),
    of_table("nullable-key", "CREATE TABLE t (id int UNIQUE)", says="SET NOT NULL"),
    of_table("replica-identity-nothing", T, "ALTER TABLE t REPLICA IDENTITY NOTHING"),
    of_table(
        "replica-identity-index-missing",
        "CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL)",
        "CREATE UNIQUE INDEX gone ON t (c)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX gone",
        "DROP INDEX gone",
    ),
    of_table("partitioned-identity", *PARTED, "ALTER TABLE t REPLICA IDENTITY FULL"),
    of_table("partition-identity", *PARTED, "ALTER TABLE t1 REPLICA IDENTITY NOTHING"),
    of_table("partition-maintenance", *PARTED, severity=WARNING, says="headrace dump start"),
    of_table(
        "generated-identity",
        "CREATE TABLE t (id int, g int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, g))",
        says="USING INDEX",
    ),
    of_table("unlogged-table", "CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", says="SET LOGGED"),
    of_table(
        "foreign-table",
        "CREATE FOREIGN DATA WRAPPER far_away",
        "CREATE SERVER far FOREIGN DATA WRAPPER far_away",
        "CREATE FOREIGN TABLE t (id int) SERVER far",
    ),
    of_table("no-select", T, ROLE, role=True, says='GRANT SELECT ON "public"."t" TO "plain";'),
    of_table("not-owner", T, ROLE, role=True),
    of_table(
        "no-schema-usage",
        T,
        ROLE,
        "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
        role=True,
        says="GRANT USAGE ON SCHEMA",
    ),
    of_table("row-security", T, ROLE, "ALTER TABLE t ENABLE ROW LEVEL SECURITY", role=True),
    of_table(
        "table-not-published",
        T,
        "CREATE PUBLICATION theirs",
        doc={"source": {"publication": "theirs"}},
        says="ADD TABLE",
    ),
    Case(
        "schema-name-dotted",
        ('CREATE SCHEMA "a.b"', 'CREATE TABLE "a.b".c (id int PRIMARY KEY)'),
        {"source": {"tables": ["a?b.*"]}},
        table="a.b.c",
        says="source.exclude: ['a?b.*']",
    ),
    of_table(
        "column-name-taken",
        "CREATE TABLE t (id int PRIMARY KEY, _op int)",
        says="RENAME COLUMN",
    ),
    of_table(
        "row-filter",
        T,
        "CREATE PUBLICATION theirs FOR TABLE t WHERE (id > 5)",
        doc={"source": {"publication": "theirs"}},
        since=15,
    ),
    of_table(
        "column-list",
        T,
        "CREATE PUBLICATION theirs FOR TABLE t (id)",
        doc={"source": {"publication": "theirs"}},
        severity=WARNING,
        says="left out: v",
        since=15,
    ),
    of_table(
        "unknown-column",
        T,
        doc={"source": {"columns": {TABLE: {"exclude": ["w"]}}}},
        severity=WARNING,
    ),
    of_table(
        "key-column-kept",
        T,
        doc={"source": {"columns": {TABLE: {"exclude": ["id"]}}}},
        severity=WARNING,
    ),
    of_table(
        "columns-left-out-late",
        T,
        "ALTER TABLE t REPLICA IDENTITY FULL",
        doc={"source": {"columns": {TABLE: {"exclude": ["v"]}}}},
        severity=WARNING,
    ),
    of_table(
        "generated-columns",
        "CREATE TABLE t (id int PRIMARY KEY, d int GENERATED ALWAYS AS (id) STORED)",
        severity=WARNING,
        says="d.",
    ),
    of_table("statistics-missing", T, severity=WARNING, says='ANALYZE "public"."t";'),
    # -- what the target makes of names and modes
    of_table(
        "column-name-refused",
        'CREATE TABLE t (id int PRIMARY KEY, "a b" int)',
        column="a b",
        says="rename",
    ),
    of_table(
        "column-names-collide",
        'CREATE TABLE t (id int PRIMARY KEY, v int, "V" int)',
        column="V",
        says="by case alone",
    ),
    Case(
        "table-name-refused",
        ('CREATE TABLE "a/b" (id int PRIMARY KEY)',),
        table="public.a/b",
        says="no folder",
    ),
    of_table(
        "mode-without-key",
        "CREATE TABLE t (v int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        doc=set_up({"mode": "history"}),
    ),
    of_table(
        "mode-column-taken",
        "CREATE TABLE t (id int PRIMARY KEY, _deleted bool)",
        doc=set_up({"mode": "soft_delete"}),
        column="_deleted",
    ),
    Case(
        "setting-unsupported",
        doc=set_up({"partition_by": ["v"]}, target={"type": "duckdb", "path": "shop.duckdb"}),
        says="partitions no tables",
    ),
    # -- settings of columns and rows
    Case(
        "table-unmatched",
        doc={"tables": {"public.nowhere": {"mode": "append"}}},
        severity=WARNING,
        says="public.nowhere",
    ),
    of_table(
        "transform-column-unknown", T, doc=set_up({"rename": {"w": "x"}}), column="w", says="id, v"
    ),
    of_table("transform-key-column", T, doc=set_up({"mask": {"id": "0"}}), column="id"),
    of_table(
        "transform-left-out", T, doc=set_up({"drop": ["v"], "rename": {"v": "x"}}), column="v"
    ),
    of_table("transform-names-collide", T, doc=set_up({"rename": {"v": "ID"}}), column="ID"),
    of_table("expression-unreadable", T, doc=set_up({"mask": {"v": "concat(v"}}), column="v"),
    of_table(
        "expression-column-unknown", T, doc=set_up({"compute": {"w": "upper(x)"}}), column="w"
    ),
    of_table("expression-unfit", T, doc=set_up({"where": "count(v) > 1"})),
    of_table(
        "partition-column-unfit",
        "CREATE TABLE t (id int PRIMARY KEY, v float8)",
        doc=set_up({"partition_by": ["v"]}),
        says="float64",
    ),
)
