"""What a publication publishes, out of the catalog's own tables.

The server's view ``pg_publication_tables`` opens every table of the publication to list its columns. So it waits while
anybody holds one of them locked for himself, a migration that writes it anew for hours among others; these queries
take no lock on any table of the user.

In: the server's version. Out: SQL.
"""

from __future__ import annotations

__all__ = ["CHOOSY_VERSION", "GENERATED_VERSION", "published_sql"]

CHOOSY_VERSION = 15
"""From here on a publication may choose rows and columns, and hold all tables of a schema."""
GENERATED_VERSION = 18
"""From here on it may publish generated columns."""

_FIRST_OF_USERS = 16_384
"""Lowest oid that is not the server's own."""

# Chosen: named by the publication itself. Below: with the partitions under each of them.
_PUBLISHED = f"""
WITH RECURSIVE pub AS (
    SELECT p.*, {{generated}} AS generates FROM pg_publication p WHERE p.pubname = $1
), chosen AS (
    SELECT c.oid, p.puballtables OR {{by_schema}} AS whole
      FROM pub p, pg_class c
     WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= {_FIRST_OF_USERS}
       AND (p.puballtables OR {{by_schema}} OR EXISTS (
           SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid))
), below AS (
    SELECT oid AS root, oid FROM chosen
    UNION
    SELECT b.root, k.oid FROM below b
      JOIN pg_inherits i ON i.inhparent = b.oid
      JOIN pg_class k ON k.oid = i.inhrelid AND k.relispartition
), published AS (
    SELECT DISTINCT b.oid FROM pub p, below b JOIN pg_class k ON k.oid = b.oid
     WHERE CASE WHEN p.pubviaroot
                THEN b.root = b.oid
                     AND NOT EXISTS (SELECT FROM below o WHERE o.oid = b.oid AND o.root <> b.oid)
                ELSE k.relkind = 'r' END
)
SELECT c.oid, n.nspname, c.relname, {{choice}}
  FROM pub p, published u
  JOIN pg_class c ON c.oid = u.oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN chosen h ON h.oid = u.oid
"""

_BY_SCHEMA = """EXISTS (
           SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)"""

# Filters and lists count for the table that they were said of, unless it is published as a whole besides.
_CHOICE = """
       coalesce((SELECT r.prqual IS NOT NULL FROM pg_publication_rel r
                  WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND NOT h.whole), false) AS filtered,
       (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND coalesce(
               (SELECT a.attnum = ANY (r.prattrs) FROM pg_publication_rel r
                 WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND NOT h.whole),
               a.attgenerated = '' OR (p.generates AND a.attgenerated = 's'))) AS columns"""


def published_sql(version: int) -> str:
    """Return the query for what the publication ``$1`` publishes.

    Its rows are oid, schema, name, whether rows are filtered, and the columns as a JSON list; before 15 null, which
    is all of them.
    """
    choosy = version >= CHOOSY_VERSION
    return _PUBLISHED.format(
        generated="p.pubgencols = 's'" if version >= GENERATED_VERSION else "false",
        by_schema=_BY_SCHEMA if choosy else "false",
        choice=_CHOICE if choosy else "false AS filtered, NULL AS columns",
    )
