"""Our configuration in the design's JSON: the way back of `headrace.replicator.seed.read`.

What the design has no words for stands in the section ``headrace`` of the document, in the words of our own file, so
that nothing is lost and programs that know the design alone read the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import urlsplit

from headrace.replicator.seed.plugins import ARTIFACT, Plugin, named
from headrace.replicator.seed.secrets import theirs, theirs_of_url

__all__ = ["write_seed"]

_WILD = frozenset("*?")


def write_seed(
    mapping: Mapping[str, Any], about: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a configuration as a document of the design.

    Args:
        mapping: in the words of our own file, references unresolved.
        about: what is said for people alone: description and label.

    Returns:
        the document; `read_seed` gives the same mapping back, for a mapping that is a configuration.
    """
    left = deepcopy(dict(mapping))
    document: dict[str, Any] = {"name": left.pop("name", ""), **(about or {})}
    source, target = dict(left.pop("source", {})), dict(left.pop("target", {}))
    tables = _listed(source)
    document["stages"] = [
        _stage("source", named("source", str(source.get("type", ""))), source),
        _stage("target", named("target", str(target.get("type", ""))), target),
    ]
    document["connections"] = [{"from": "source", "to": "target"}]
    if tables:
        document["tables"] = tables
    if renames := _renames(left):
        document["tableTransformations"] = renames
    if own := {name: value for name, value in left.items() if value not in ({}, None)}:
        document["headrace"] = theirs(own)
    return document


def _stage(name: str, plugin: Plugin | None, section: dict[str, Any]) -> dict[str, Any]:
    kind = str(section.pop("type", ""))
    properties: dict[str, Any] = _place(str(section["url"])) if "url" in section else {}
    if properties:
        section.pop("url")
    for field, value in section.items():
        properties[field] = (
            theirs(value) if isinstance(value, dict | list | tuple) else _text(value)
        )
    return {
        "name": name,
        "plugin": {
            "name": plugin.name if plugin else kind,
            "type": "cdcSource" if name == "source" else "cdcTarget",
            "artifact": dict(ARTIFACT),
            "properties": properties,
        },
    }


def _text(value: Any) -> Any:
    """Return a value as properties have it: as text, but for nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None else str(theirs(str(value)))


def _place(url: str) -> dict[str, Any]:
    """Return the parts of a URL, none where it has more than these."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return {}
    if parts.scheme not in ("postgresql", "postgres") or parts.query or parts.fragment:
        return {}
    login, _, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, ""
    found = {
        "host": host,
        "port": port,
        "user": theirs_of_url(user),
        "password": theirs_of_url(password),
        "database": theirs_of_url(parts.path.removeprefix("/")),
    }
    named_ = {name: value for name, value in found.items() if value}
    # A secret that stands there as it is, and not escaped, is none of a part alone.
    return {} if "${env:" in parts.netloc or not host or not found["database"] else named_


def _listed(source: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the tables out of a source, as far as each is named and none is a pattern."""
    patterns = [str(pattern) for pattern in source.get("tables", ())]
    if patterns == ["*.*"]:
        del source["tables"]
        return []
    if any(_WILD & set(pattern) or pattern.count(".") != 1 for pattern in patterns):
        return []
    source.pop("tables", None)
    columns = source.get("columns", {})
    found = []
    for schema, _, name in (pattern.partition(".") for pattern in patterns):
        table: dict[str, Any] = {"schema": schema, "table": name}
        chosen = columns.get(f"{schema}.{name}", {})
        if list(chosen) == ["include"]:
            table["columns"] = [{"name": column} for column in chosen["include"]]
            del columns[f"{schema}.{name}"]
        found.append(table)
    if not columns:
        source.pop("columns", None)
    return found


def _renames(left: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the other names of columns out of the settings of single tables."""
    found: list[dict[str, Any]] = []
    if any(_WILD & set(pattern) for pattern in left.get("tables", {})):
        # The first pattern that matches counts, and a list of transformations has no place among them.
        return found
    for pattern, settings in left.get("tables", {}).items():
        names = settings.get("rename", {})
        plain = {old: new for old, new in names.items() if len(f"{old} {new}".split()) == 2}
        if not plain or plain != names or len(settings) > 1:
            continue
        del settings["rename"]
        steps = [{"columnName": o, "directive": f"rename {o} {n}"} for o, n in names.items()]
        found.append({"tableName": pattern, "columnTransformations": steps})
    if "tables" in left:
        left["tables"] = {pattern: held for pattern, held in left["tables"].items() if held}
    return found
