"""Whether a change of a table's shape gave rows other keys, which no event carries.

A dump brings rows under the keys that they have; those under which a copy knew them would stay in it for ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import pyarrow as pa

from headrace.model.schema import TableSchema

__all__ = ["is_rekeyed"]

_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES = ("time", "datetime", "timestamp")


def is_rekeyed(
    before: TableSchema, after: TableSchema, remade: Collection[str], unfit: Collection[str] = ()
) -> bool:
    """Return whether rows may have other keys than they would have had before.

    Args:
        before: the table's shape until then.
        after: and from then on.
        remade: columns that hold other values though they look alike, in small letters.
        unfit: columns whose texts may have lost letters that a character set lacks, likewise; all where an empty name
            is among them.
    """
    known = {column.name: column.source_type for column in before.columns}
    return any(
        name.lower() in remade
        or name not in known
        or (pa.types.is_string(after.column(name).type) and ("" in unfit or name.lower() in unfit))
        or not _keeps(known[name], after.column(name).source_type)
        for name in after.key
    )


def _keeps(before: str, after: str) -> bool:
    """Return whether every value of a type is the same value of another one."""
    one, other = _TYPE.fullmatch(before), _TYPE.fullmatch(after)
    if before == after or one is None or other is None:
        return before == after
    (name, *sizes), (new_name, *new_sizes) = one.groups(), other.groups()
    size, fraction = int(sizes[0] or 0), int(sizes[1] or 0)
    new_size, new_fraction = int(new_sizes[0] or 0), int(new_sizes[1] or 0)
    if name in _INTEGERS and new_name in _INTEGERS:
        # Rows that a sign would change are refused, or are another row's.
        return _INTEGERS.index(name) <= _INTEGERS.index(new_name)
    if name == new_name == "decimal":
        return fraction <= new_fraction and size - fraction <= new_size - new_fraction
    if name == new_name and name in _TIMES:
        return size <= new_size
    for family in (_TEXTS, _BYTES):
        if name in family and new_name in family:
            # Text without a size is longer than all that has one; `char` loses the spaces at its end.
            wider = (family.index(name), size) <= (family.index(new_name), new_size)
            return wider and (new_name != "varchar" or size <= new_size)
    return False
