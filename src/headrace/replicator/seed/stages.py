"""A stage of the design's JSON as a section of ours: the plugin's properties, by either spelling of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.replicator.assess.problems import Problem
from headrace.replicator.seed.plugins import Plugin, Side, value_of
from headrace.replicator.seed.secrets import in_url, is_reference, ours
from headrace.sources.base import Severity

__all__ = ["PLACE_OF_URL", "Stage", "section_of"]

PLACE_OF_URL = ("host", "port", "database", "user", "password")
"""Properties of the design that make one URL of ours."""

_SECRETS = ("password", "secret_access_key", "session_token", "token")
_WITHOUT_COUNTERPART = {
    "consumerid": "headrace registers no consumer at the source: slot and publication are named after the replicator",
    "servertimezone": "PostgreSQL tells instants in UTC whatever its time zone is",
    "driver": "headrace speaks the protocol of PostgreSQL itself",
    "jdbcpluginname": "headrace speaks the protocol of PostgreSQL itself",
}
_SCHEMES = {"postgres": "postgresql", "mysql": "mysql"}
"""Of the URLs of databases."""
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        place: in the document.
        name: by which connections know it.
        side: of a replicator.
        plugin: as the document has it.
    """

    place: str
    name: str
    side: Side
    plugin: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        """Of the plugin."""
        found = self.plugin.get("properties")
        return found if isinstance(found, Mapping) else {}


def section_of(
    stage: Stage, plugin: Plugin, mapping: dict[str, Any], places: dict[str, str]
) -> Iterator[Problem]:
    """Read a stage's properties, and yield what is wrong with them.

    Args:
        stage: which.
        plugin: that it names.
        mapping: our configuration; its section is made, and others get what the design has here.
        places: gets the places of the document.
    """
    here = f"{stage.place}.plugin.properties"
    section: dict[str, Any] = {"type": plugin.name}
    mapping[stage.side] = section
    places[stage.side] = here
    given = {str(name): value for name, value in stage.properties.items()}
    if "url" in plugin.fields and "url" not in given:
        parts = {name: given.pop(name) for name in PLACE_OF_URL if name in given}
        section["url"] = _url(
            _SCHEMES[plugin.name], {name: str(value) for name, value in parts.items()}
        )
        places[f"{stage.side}.url"] = here
        if lacking := [name for name in ("host", "database") if not parts.get(name)]:
            yield Problem(
                "configuration",
                f"{stage.place} has no {' and no '.join(lacking)}.",
                f"Add {' and '.join(lacking)} to its properties.",
                field=f"{here}.{lacking[0]}",
            )
        if (port := str(parts.get("port", "5432"))) and not _is_port(port):
            yield Problem(
                "configuration",
                f"The port of {stage.place} is no number from 1 to 65535.",
                "Correct the port; PostgreSQL's own is 5432.",
                field=f"{here}.port",
            )
        yield from _in_clear({"password": parts.get("password")}, here)
    for name, value in given.items():
        field = plugin.field_of(name)
        if field:
            section[field] = ours(value_of(plugin, field, value))
            places[f"{stage.side}.{field}"] = f"{here}.{name}"
        else:
            yield from _other(stage, plugin, name, value, mapping)
    yield from _in_clear(given, here)
    if plugin.side == "source" and plugin.name in _SCHEMES:
        section.setdefault("tables", ["*.*"])


def _url(scheme: str, parts: Mapping[str, str]) -> str:
    """Return a connection URL; a part that is not there is left to the client's own defaults."""
    login = in_url(parts.get("user", ""))
    if parts.get("password"):
        login += f":{in_url(parts['password'])}"
    host = in_url(parts.get("host", "")).replace("%3A", ":").replace("%5B", "[").replace("%5D", "]")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    port = parts.get("port", "").strip()
    place = f"{host}:{in_url(port)}" if port and (_is_port(port)) else host
    return f"{scheme}://{login}{'@' if login else ''}{place}/{in_url(parts.get('database', ''))}"


def _is_port(text: str) -> bool:
    if is_reference(text):
        return True
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535


def _in_clear(given: Mapping[str, Any], here: str) -> Iterator[Problem]:
    for name in _SECRETS:
        value = given.get(name)
        if isinstance(value, str) and value and "${" not in value:
            yield Problem(
                "secret-in-clear",
                f"{name} is written out.",
                f"Write ${{secure(<name>)}} or ${{env:<NAME>}}, and put the {name} into the environment.",
                Severity.WARNING,
                field=f"{here}.{name}",
            )


def _other(
    stage: Stage, plugin: Plugin, name: str, value: Any, mapping: dict[str, Any]
) -> Iterator[Problem]:
    """Read a property that is none of the section's own: the design's, or none at all."""
    place, text = f"{stage.place}.plugin.properties.{name}", str(value).strip().lower()
    said = (stage.side, name)
    truth = text in _TRUE or text in _FALSE
    if said == ("source", "replicateExistingData") and truth:
        if text in _FALSE:
            yield Problem(
                "existing-rows-wanted",
                "replicateExistingData is false, and headrace always copies the rows that are there.",
                "Set it to true; or leave rows out at the target: tables: {<schema.table>: {where: …}}.",
                field=place,
            )
    elif said == ("target", "softDeletes") and truth:
        if text in _TRUE:
            tables = mapping.setdefault("tables", {})
            tables.setdefault("*.*", {})["mode"] = "soft_delete"
    elif said == ("target", "requireManualDrops") and truth:
        kept = "keep" if text in _TRUE else "drop"
        mapping.setdefault("changes", {})["dropped_table"] = kept
    elif said == ("target", "loadInterval"):
        mapping.setdefault("apply", {})["trigger_s"] = ours(value)
    elif reason := _WITHOUT_COUNTERPART.get(name.lower()):
        yield Problem(
            "field-unsupported",
            f"{name} has no counterpart: {reason}.",
            "Take it away.",
            Severity.WARNING,
            field=place,
        )
    else:
        known = ", ".join((*(PLACE_OF_URL if "url" in plugin.fields else ()), *plugin.fields))
        yield Problem(
            "property-unknown",
            f"The {stage.side} {plugin.name} has no property {name}.",
            f"Take it away; known properties are {known}.",
            Severity.WARNING,
            field=place,
        )
