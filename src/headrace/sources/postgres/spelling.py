"""What decides how a table's rows are told, and changes without a word in the log and without a lock on the table.

A label of an enum that is renamed, or an attribute that a composite type gets, makes stored rows read otherwise; an
adopted publication that is given more columns tells them of later changes alone. What open transactions wrote may still
be told in the old way, so a look has the table read again only when its present writers are gone.

In: the catalog. Out: a text per table; and whether rows are to be read again between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.published import CHOOSY_VERSION, published_sql
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["read_spelling", "respells", "respells_types"]

_FIRST_OF_USERS = 16_384
"""Lowest oid that is not the server's own; its own types never change."""

# Types that a table's columns are made of, however deep: enums by their labels in the order in which these came
# (a label is any text, so its hash), composites by their attributes.
_TYPES = f"""
WITH RECURSIVE used AS (
    SELECT attrelid AS relation, atttypid AS type FROM pg_attribute
     WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped AND atttypid >= {_FIRST_OF_USERS}
    UNION
    SELECT u.relation, m.type FROM used u JOIN pg_type t ON t.oid = u.type, LATERAL (
               SELECT t.typelem AS type
               UNION ALL SELECT t.typbasetype
               UNION ALL SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)
               UNION ALL SELECT atttypid FROM pg_attribute
                          WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) m
     WHERE m.type >= {_FIRST_OF_USERS}
)
SELECT u.relation, string_agg(concat(t.typtype, t.oid, '=', CASE t.typtype
           WHEN 'e' THEN (SELECT string_agg(left(md5(enumlabel), 6), '' ORDER BY oid) FROM pg_enum
                           WHERE enumtypid = t.oid)
           ELSE (SELECT string_agg(concat(attnum, ':', atttypid), ' ' ORDER BY attnum) FROM pg_attribute
                  WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) END), ';' ORDER BY t.oid)
  FROM used u JOIN pg_type t ON t.oid = u.type WHERE t.typtype IN ('e', 'c') GROUP BY u.relation
"""

# Numbers of columns that a publication leaves out, and of generated ones that it tells, with who last described them.
_PUBLISHED = """
SELECT p.oid, concat('u', string_agg(a.attnum::text, ' ' ORDER BY a.attnum)
                     FILTER (WHERE NOT p.columns::jsonb ? a.attname AND a.attgenerated = ''),
              ';g', string_agg(concat(a.attnum, '.', a.xmin), ' ' ORDER BY a.attnum)
                     FILTER (WHERE p.columns::jsonb ? a.attname AND a.attgenerated <> ''))
  FROM ({published}) p JOIN pg_attribute a ON a.attrelid = p.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE p.oid = ANY ($2::oid[]) GROUP BY p.oid
"""


def read_spelling(
    session: Session, settings: PostgresSettings, tables: Iterable[int]
) -> dict[int, str]:
    """Return the text of each table that has one."""
    asked = "{" + ",".join(map(str, tables)) + "}"
    found = {int(oid or 0): text or "" for oid, text in session.rows(_TYPES, asked)}
    if settings.publication is not None and session.version >= CHOOSY_VERSION:
        sql = _PUBLISHED.format(published=published_sql(session.version))
        for oid, text in session.rows(sql, settings.publication, asked):
            key = int(oid or 0)
            found[key] = ";".join(filter(None, (text, found.get(key))))
    return found


def respells(before: str, now: str, columns: Iterable[str]) -> bool:
    """Return whether rows are to be read again.

    Args:
        before: what was read of a table.
        now: likewise, later.
        columns: numbers of the columns that it has now.
    """
    old, new = _parse(before), _parse(now)
    told = set(old.get("u", "").split()) - set(new.get("u", "").split())
    if told & set(columns):
        return True
    if "g" in old and set(new.get("g", "").split()) - set(old["g"].split()):
        return True
    return bool(_respelt(old, new))


def respells_types(before: str, now: str, types: Iterable[str]) -> bool:
    """Return whether values of some types read otherwise; one that is made of others may, when any of a table does.

    Args:
        before: what was read of a table.
        now: likewise, later.
        types: their oids.
    """
    old, new = _parse(before), _parse(now)
    otherwise = {type_[1:] for type_ in _respelt(old, new)}
    simple = {type_[1:] for type_ in new}
    own = {type_ for type_ in types if int(type_) >= _FIRST_OF_USERS}
    return bool(otherwise) and bool(own & otherwise or own - simple)


def _respelt(old: dict[str, str], new: dict[str, str]) -> set[str]:
    """Return the types of which values read otherwise. Labels only ever come; attributes come and go."""
    return {
        type_
        for type_ in old.keys() & new.keys() - {"u", "g"}
        if not (new[type_].startswith(old[type_]) if type_[0] == "e" else new[type_] == old[type_])
    }


def _parse(text: str) -> dict[str, str]:
    """Return what is known by type, and of a publication's columns under ``u`` and ``g``."""
    found = {}
    for part in filter(None, text.split(";")):
        name, equals, value = part.partition("=")
        found[name if equals else part[0]] = value if equals else part[1:]
    return found
