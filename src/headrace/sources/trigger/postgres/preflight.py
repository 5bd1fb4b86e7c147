"""Everything that stands in the way of a capture by triggers, found at once, each with its remedy.

Selects from the catalog only, and plans of chunk reads; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.sources.base import Finding, Severity
from headrace.sources.naming import unnameable
from headrace.sources.postgres.catalog import TableFacts, TypeCache, read_tables
from headrace.sources.postgres.connection import Session, quote
from headrace.sources.postgres.plan import check_plan
from headrace.sources.postgres.preflight import server_findings
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.tables_check import privileges
from headrace.sources.taken import taken
from headrace.sources.trigger.postgres import objects
from headrace.sources.trigger.postgres.installed import has_objects, wrong_triggers
from headrace.sources.trigger.postgres.settings import SCHEMA, PostgresTriggerSettings
from headrace.sources.trigger.queues import not_removable

__all__ = ["check_table", "may_install", "preflight"]

_ROLE = """
SELECT rolname, rolsuper, has_database_privilege(current_database(), 'CREATE'),
       (SELECT pg_has_role(nspowner, 'USAGE') OR has_schema_privilege(oid, 'CREATE')
          FROM pg_namespace WHERE nspname = $1)
  FROM pg_roles WHERE rolname = current_user
"""

# By oid: a name could not even be looked up without the right to use its schema.
_PRIVILEGES = """
SELECT bool_and(has_schema_privilege(n.oid, 'USAGE') AND CASE c.relkind
           WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
           ELSE has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'DELETE')
                AND (c.relname <> 'txlog_readers' OR has_table_privilege(c.oid, 'UPDATE')) END)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'headrace' AND c.relkind IN ('r', 'S') AND c.relname LIKE 'txlog%'
"""

_MAY_DELETE = "SELECT has_table_privilege($1::oid, 'DELETE')"


def preflight(session: Session, settings: PostgresTriggerSettings) -> list[Finding]:
    """Return all findings: the server first, then what is installed, then tables."""
    tables = read_tables(session, settings.database.filter)
    findings = list(server_findings(session))
    if not tables:
        findings.append(
            Finding(
                "no-tables",
                f"No table matches {', '.join(settings.database.tables)}.",
                "Correct source.tables, or create the tables first.",
            )
        )
    if (finding := _objects(session)) or (finding := may_install(session, settings, tables)):
        findings.append(finding)
    role = session.value("SELECT current_user")
    types = TypeCache()
    for facts in tables:
        findings += check_table(facts)
        sql = f"{quote(facts.table.schema)}.{quote(facts.table.name)}"
        findings += privileges(facts, str(facts.table), sql, role)
        if settings.removes(facts.table):
            may = session.value(_MAY_DELETE, str(facts.oid)) == "t"
            grant = f"GRANT DELETE ON {sql} TO {quote(role)}"
            key = bool(facts.identity.key)
            if found := not_removable(facts.table, has_key=key, may=may, grant=grant):
                findings.append(found)
        if facts.readable and facts.schema_usable and not facts.row_security:
            published = as_published(session, settings.database, facts)
            if plan := check_plan(session, types, published):
                findings.append(plan)
    return findings


def check_table(facts: TableFacts) -> Iterator[Finding]:
    """Yield every finding about one table that its catalog facts alone tell."""
    name = str(facts.table)
    yield from unnameable(facts.table)
    if facts.kind == "f":
        yield Finding(
            "foreign-table",
            f"{name} is a foreign table: what is written elsewhere fires no trigger.",
            f"Capture it where it lives. Or exclude {name}.",
            table=name,
        )
    elif facts.persistence == "u":
        yield Finding(
            "unlogged-table",
            f"{name} is unlogged: a crash empties it, and fires no trigger.",
            f"ALTER TABLE {quote(facts.table.schema)}.{quote(facts.table.name)} SET LOGGED; or exclude {name}.",
            table=name,
        )
    elif facts.partitioned:
        yield Finding(
            "partitioned-table",
            f"{name} is partitioned: its triggers would fire in the partitions, each with columns in its own order.",
            f"Exclude {name}: its partitions are then captured as tables of their own.",
            table=name,
        )
    elif facts.identity.nullable:
        yield Finding(
            "nullable-key",
            f"{name} is told apart by {', '.join(facts.identity.nullable)}, which may be null where NOT NULL "
            "was never validated: such rows have no key.",
            "ALTER TABLE … VALIDATE CONSTRAINT …",
            table=name,
        )
    sql = f"{quote(facts.table.schema)}.{quote(facts.table.name)}"
    remedy = f"ALTER TABLE {sql} RENAME COLUMN … TO …; or exclude {name}."
    yield from taken(name, (a.name for a in facts.published), facts.identity.key, remedy)
    if generated := [a.name for a in facts.attributes if a.generated]:
        yield Finding(
            "generated-columns",
            f"{name}: generated columns are not in the replica: {', '.join(generated)}.",
            "Compute them in a view over the replica.",
            Severity.WARNING,
            table=name,
        )


def may_install(
    session: Session, settings: PostgresTriggerSettings, tables: Sequence[TableFacts]
) -> Finding | None:
    """Return why missing triggers cannot be made by our role, None when they can or none is missing."""
    there = has_objects(session)
    wrong = wrong_triggers(session, (facts.oid for facts in tables))
    lacking = [facts for facts in tables if facts.oid in wrong]
    role, superuser, may_create, in_schema = session.rows(_ROLE, SCHEMA)[0]
    if superuser == "t" or (there and not lacking):
        return None
    foreign = [facts.table for facts in lacking if not facts.owned]
    may = in_schema == "t" if in_schema is not None else may_create == "t"
    if not foreign and (there or may):
        return None
    reasons = []
    if not there and not may:
        reasons.append("it may not make tables in a schema headrace")
    if foreign:
        reasons.append(f"it does not own {', '.join(map(str, foreign))}")
    return Finding(
        "may-not-make-triggers",
        f"Role {role} cannot make the triggers that are missing: {' and '.join(reasons)}.",
        f"Let a role that may run what `headrace source triggers show FILE` prints, which is for {settings.name}.",
    )


def _objects(session: Session) -> Finding | None:
    """Return why change tables that are there cannot be used."""
    if not has_objects(session) or session.value(_PRIVILEGES) == "t":
        return None
    role = session.value("SELECT current_user")
    return Finding(
        "change-tables-not-usable",
        f"Role {role} may not read and write the change tables, which another role has made.",
        "; ".join(objects.grants(role)) + ";",
    )
