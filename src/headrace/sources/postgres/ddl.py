"""Migrations at their exact place: an event trigger writes what it sees into the log, as logical messages.

Optional, because only a superuser may make an event trigger; without it the log's own descriptions of tables and
looks at the catalog tell the same, a little later. The trigger serves every pipeline of the database, and a failure
of it never makes a migration fail.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.errors import ProtocolError
from headrace.model.schema import TableId
from headrace.sources.postgres.messages import Relation, RelationColumn
from headrace.sources.postgres.settings import MARKS_SCHEMA

__all__ = ["DDL_PREFIX", "DROP_TRIGGER_SQL", "TRIGGERS", "TRIGGER_SQL", "Told", "parse"]

DDL_PREFIX = f"{MARKS_SCHEMA}/ddl"
"""Prefix of the trigger's messages."""
TRIGGERS = ("headrace_ddl", "headrace_drop")
"""Names of the event triggers; both call one function."""

TRIGGER_SQL = f"""
CREATE SCHEMA IF NOT EXISTS {MARKS_SCHEMA};
CREATE OR REPLACE FUNCTION {MARKS_SCHEMA}.tell_ddl() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $headrace$
DECLARE told json;
BEGIN
    IF TG_EVENT = 'sql_drop' THEN
        FOR told IN
            SELECT json_build_object('event', 'drop', 'object', object_type, 'identity', objid::text,
                       'schema', coalesce(schema_name, object_name), 'name', object_name)
              FROM pg_event_trigger_dropped_objects() WHERE object_type IN ('table', 'schema')
        LOOP
            PERFORM pg_logical_emit_message(true, '{DDL_PREFIX}', told::text);
        END LOOP;
    ELSE FOR told IN
        SELECT json_build_object('event', 'shape', 'object', 'table', 'identity', c.oid::text,
                   'schema', n.nspname, 'name', c.relname, 'replica', c.relreplident, 'columns', (
                   SELECT json_agg(json_build_array(a.attname, c.relreplident = 'f' OR EXISTS (
                              SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
                                 AND a.attnum = ANY (i.indkey)
                                 AND CASE c.relreplident WHEN 'd' THEN i.indisprimary
                                     WHEN 'i' THEN i.indisreplident ELSE false END),
                              a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                      AND NOT a.attisdropped AND a.attgenerated = ''))
          FROM (SELECT DISTINCT objid FROM pg_event_trigger_ddl_commands()
                 WHERE object_type IN ('table', 'table column')) d
          JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
        UNION ALL
        SELECT json_build_object('event', 'shape', 'object', 'schema', 'identity', n.oid::text,
                   'schema', n.nspname, 'name', '')
          FROM pg_event_trigger_ddl_commands() d JOIN pg_namespace n ON n.oid = d.objid
         WHERE d.object_type = 'schema'
        LOOP
            PERFORM pg_logical_emit_message(true, '{DDL_PREFIX}', told::text);
        END LOOP;
    END IF;
    IF FOUND THEN
        -- The server sorts a subtransaction's message by its end, where the next record begins: this is that record.
        PERFORM pg_logical_emit_message(true, '{DDL_PREFIX}/end', '');
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'headrace.tell_ddl: %', SQLERRM;
END $headrace$;
CREATE EVENT TRIGGER {TRIGGERS[0]} ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE', 'CREATE SCHEMA', 'ALTER SCHEMA')
    EXECUTE FUNCTION {MARKS_SCHEMA}.tell_ddl();
CREATE EVENT TRIGGER {TRIGGERS[1]} ON sql_drop EXECUTE FUNCTION {MARKS_SCHEMA}.tell_ddl();
""".strip()
"""What an administrator runs once per database."""

DROP_TRIGGER_SQL = (
    f"DROP EVENT TRIGGER IF EXISTS {TRIGGERS[0]}; DROP EVENT TRIGGER IF EXISTS {TRIGGERS[1]}; "
    f"DROP FUNCTION IF EXISTS {MARKS_SCHEMA}.tell_ddl();"
)
"""What takes it away again."""


class Told:
    """One message of the trigger.

    Attributes:
        dropped: whether the object is gone; else it is as said from here on.
        identity: its oid, as text.
        table: its name; a namespace has an empty one.
        relation: the table's shape, None of what is no table or is gone.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.dropped: bool = {"drop": True, "shape": False}[value["event"]]
        self.identity: str = value["identity"]
        namespace = {"schema": True, "table": False}[value["object"]]
        self.table = TableId(value["schema"], "" if namespace else value["name"])
        self.relation: Relation | None = None
        if not namespace and not self.dropped:
            columns = tuple(
                RelationColumn(name, bool(key), int(type_oid), int(modifier))
                for name, key, type_oid, modifier in value["columns"] or ()
            )
            self.relation = Relation(int(self.identity), *self.table, value["replica"], columns)


def parse(content: bytes) -> Told:
    """Return what a message says.

    Raises:
        ProtocolError: our trigger did not write it.
    """
    try:
        return Told(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(
            f"A logical message of {len(content)} bytes under {DDL_PREFIX} is none of our event trigger's.",
            next_step=f"find who writes messages under {DDL_PREFIX}, or make the trigger anew: "
            "`headrace preflight FILE` prints it.",
        ) from error
