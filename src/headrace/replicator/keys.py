"""Keys as people write them: ``42``, ``17,1``, ``(17,1)`` or ``{order_id=17,line=1}``.

Parts are quoted as in CSV where they hold a comma, a quote or nothing, or begin as one of the forms. Blanks count: they
are part of a value, and only those around the brackets of a form and the names of columns are passed over. Whether a
part is a value of its column's type is for the source to say, when the request is carried out.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from headrace.errors import ConfigError
from headrace.plural import counted

__all__ = ["parse_keys"]


def parse_keys(texts: Sequence[str], columns: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Return keys in the order of the key's columns.

    Args:
        texts: one key each.
        columns: the key's columns, None when the table's shape is not known yet.

    Raises:
        ConfigError: one cannot be read; says which by its number, never by its value.
    """
    return [_parse(f"key number {place}", text, columns) for place, text in enumerate(texts, 1)]


def _parse(what: str, text: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    form = text.strip()
    if form.startswith("{"):
        return _named(what, form, columns)
    inner = _inside(what, form, "(", ")") if form.startswith("(") else text
    parts = tuple(_parts(what, inner))
    if columns is not None and len(parts) != len(columns):
        raise _refused(what, f"has {counted(len(parts), 'part')}", columns)
    return parts


def _named(what: str, text: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        raise ConfigError(
            f"dump: {what} names columns, and the table's key is not known before it was read once.",
            next_step="write the parts in the order of the table's columns: (17,1).",
        )
    given: dict[str, str] = {}
    for part in _parts(what, _inside(what, text, "{", "}")):
        name, equals, value = part.partition("=")
        if not equals or name.strip() in given:
            raise _refused(what, "is not of the form {column=value,…}", columns)
        given[name.strip()] = value
    if set(given) != set(columns):
        raise _refused(what, "names other columns", columns)
    return tuple(given[name] for name in columns)


def _inside(what: str, text: str, first: str, last: str) -> str:
    if not text.endswith(last):
        raise _refused(what, f"begins with {first} and does not end with {last}", None)
    return text[1:-1]


def _parts(what: str, text: str) -> list[str]:
    try:
        (parts,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise _refused(what, "cannot be read", None) from error
    if not parts:
        raise _refused(what, "is empty", None)
    return parts


def _refused(what: str, why: str, columns: Sequence[str] | None) -> ConfigError:
    hint = f"; the key is ({', '.join(columns)})" if columns else ""
    return ConfigError(
        f"dump: {what} {why}{hint}.",
        next_step='write 42, "a,b",2 or (17,1) or {order_id=17,line=1}; nothing was asked for.',
    )
