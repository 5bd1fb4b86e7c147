"""The design's JSON read into our own configuration, and a problem for everything that has no place in it.

In: a document with stages and connections, alone or as a draft or an application holds it. Out: a mapping in the words
of our own file, references unresolved; nothing of the document is dropped without a word.

Source: docs/requirements.md, C68.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.schema import TableId
from headrace.replicator.assess.problems import Problem
from headrace.replicator.seed import sections
from headrace.replicator.seed.plugins import ARTIFACT, Plugin, Side, named, plugins, side_of
from headrace.replicator.seed.secrets import collisions, ours
from headrace.replicator.seed.stages import Stage, section_of
from headrace.sources.base import Severity

__all__ = ["SeedDocument", "is_seed", "read_seed"]

_ABOUT = ("description", "label")
_ENVELOPE = ("config", "deltaConfig")
_READ = frozenset(
    {
        *("name", *_ABOUT, "artifact", "stages", "connections", "tables", "tableTransformations"),
        *("dmlBlacklist", "ddlBlacklist", "retries", "parallelism", "resources"),
        *("offsetBasePath", "service", "headrace"),
    }
)


@dataclass(frozen=True, slots=True)
class SeedDocument:
    """What a document of the design says.

    Attributes:
        mapping: our configuration, as far as it could be made; references unresolved.
        problems: everything that has no place there, or none as it stands.
        quiet: columns, with their tables, that may be in another type without being counted.
        about: what is said for people alone: description and label.
        places: beginnings of places in our configuration, with those that the document has for them.
    """

    mapping: dict[str, Any]
    problems: tuple[Problem, ...]
    quiet: frozenset[tuple[TableId, str]]
    about: dict[str, str]
    places: dict[str, str]

    def place_of(self, field: str) -> str:
        """Return what a place of our configuration is called in the document."""
        begin, _, part = field.partition(" (")
        longest = sorted(self.places, key=len, reverse=True)
        for ours_, theirs in ((name, self.places[name]) for name in longest):
            if begin == ours_ or begin.startswith((f"{ours_}.", f"{ours_}[")):
                if part and theirs.endswith(".properties"):
                    return f"{theirs}.{part.removesuffix(')')}"
                return theirs + begin[len(ours_) :]
        return field


def is_seed(document: Mapping[str, Any]) -> bool:
    """Return whether a document has the design's form, and not our own."""
    return "stages" in _opened(document)


def read_seed(document: Mapping[str, Any], name: str = "") -> SeedDocument:
    """Read a document.

    Args:
        document: with stages, or with ``config`` or ``deltaConfig`` that has them.
        name: of the replicator; the document's own when empty.
    """
    return _Reader(document, name).read()


def _opened(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is inside the envelope of a draft, an application or a request."""
    for name in _ENVELOPE:
        if isinstance(inner := document.get(name), Mapping):
            return inner
    return document


class _Reader:
    def __init__(self, document: Mapping[str, Any], name: str) -> None:
        self._outer = document
        self._document = _opened(document)
        self._name = name
        self._problems: list[Problem] = []
        self._places: dict[str, str] = {}

    def read(self) -> SeedDocument:
        self._unknown()
        mapping: dict[str, Any] = {"name": self._named()}
        stages = list(self._stages())
        for side in ("source", "target"):
            self._side(mapping, side, [stage for stage in stages if stage.side == side])
        self._connections(stages)
        given = sections.Given(self._document, mapping)
        self._problems += sections.read_sections(given)
        own = self._document.get("headrace")
        if isinstance(own, Mapping):
            _merge(mapping, ours(dict(own)))
            # What is said in our own words stands there in the document too.
            for section in own:
                self._places.setdefault(section, f"headrace.{section}")
        elif own is not None:
            self._add("field-unknown", "headrace", "headrace is no section.", "Make it a section.")
        for variable, names in collisions(dict(self._document)).items():
            self._add(
                "secret-names-collide",
                "",
                f"The secrets {', '.join(names)} are all taken from the environment variable {variable}.",
                "Rename all but one of them, as letters, digits and _.",
            )
        about = {k: str(v) for k in _ABOUT if (v := self._document.get(k, self._outer.get(k)))}
        return SeedDocument(
            mapping, tuple(self._problems), frozenset(given.quiet), about, self._places
        )

    def _add(
        self,
        kind: str,
        field: str,
        description: str,
        suggestion: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        self._problems.append(Problem(kind, description, suggestion, severity, field=field))

    def _unknown(self) -> None:
        for field in self._document:
            if field not in _READ:
                self._add(
                    "field-unknown",
                    str(field),
                    f"{field} is no field of a replicator.",
                    f"Take it away; known fields are {', '.join(sorted(_READ))}.",
                    Severity.WARNING,
                )

    def _named(self) -> str:
        """Return the replicator's name: that which was given, made fit."""
        said = self._name or self._document.get("name") or self._outer.get("name")
        given = str(said or self._outer.get("label") or "replicator")
        name = re.sub(r"[^a-z0-9_-]+", "-", given.lower()).strip("-_")[:40]
        if not name[:1].isalpha():
            name = f"r-{name}"[:40].rstrip("-")
        if name != given:
            self._add(
                "name-changed",
                "name",
                f"{given[:80]} cannot be the name of a replicator; {name} stands for it.",
                "Choose lower-case letters, digits, - and _, beginning with a letter.",
                Severity.WARNING,
            )
        return name

    def _stages(self) -> Iterator[Stage]:
        """Yield the stages whose side is known."""
        found = self._document.get("stages")
        for number, stage in enumerate(found if isinstance(found, Sequence) else ()):
            place = f"stages[{number}]"
            plugin = stage.get("plugin") if isinstance(stage, Mapping) else None
            if not isinstance(plugin, Mapping):
                self._add(
                    "stages-unfit",
                    place,
                    f"{place} has no plugin.",
                    "Give it one, or take it away.",
                )
                continue
            for part, held, known in (
                (place, stage, {"name", "plugin"}),
                (f"{place}.plugin", plugin, {"name", "type", "artifact", "properties", "label"}),
            ):
                for field in held.keys() - known:
                    self._add(
                        "field-unknown",
                        f"{part}.{field}",
                        f"{part} has a field {field}, which is none of a stage's.",
                        "Take it away.",
                        Severity.WARNING,
                    )
            type_ = str(plugin.get("type", ""))
            side = side_of(type_)
            if side is None:
                self._add(
                    "plugin-type-unknown",
                    f"{place}.plugin.type",
                    f"{type_[:40] or 'No type'} is neither that of a source nor of a target.",
                    "Write cdcSource or cdcTarget.",
                )
                continue
            yield Stage(place, str(stage.get("name", "")), side, plugin)

    def _side(self, mapping: dict[str, Any], side: Side, stages: Sequence[Stage]) -> None:
        """Read the one stage of a side."""
        if len(stages) != 1:
            self._add(
                "stages-unfit",
                "stages",
                f"There {'is no' if not stages else 'are ' + str(len(stages))} {side}"
                f"{'' if len(stages) < 2 else 's'}, and a replicator has one.",
                f"Have exactly one stage whose plugin is of the type cdc{side.capitalize()}.",
            )
        for stage in stages[:1]:
            name = str(stage.plugin.get("name", ""))
            plugin = named(side, name)
            if plugin is None:
                known = ", ".join(p.name for p in plugins() if p.side == side)
                self._add(
                    "plugin-unknown",
                    f"{stage.place}.plugin.name",
                    f"There is no {side} {name[:60] or 'without a name'}.",
                    f"Choose one of {known}, and give it its own properties.",
                )
                continue
            self._artifact(stage, plugin)
            self._problems += section_of(stage, plugin, mapping, self._places)

    def _artifact(self, stage: Stage, plugin: Plugin) -> None:
        artifact = stage.plugin.get("artifact")
        given = artifact if isinstance(artifact, Mapping) else {}
        if any(str(given.get(part, own)) != own for part, own in ARTIFACT.items()):
            own = "{name} {version}, scope {scope}".format(**ARTIFACT)
            self._add(
                "artifact-ignored",
                f"{stage.place}.plugin.artifact",
                f"The plugin {plugin.name} is named in another artifact than the one it comes in, {own}.",
                "Take the artifact away, or name that one.",
                Severity.WARNING,
            )

    def _connections(self, stages: Sequence[Stage]) -> None:
        ends = {side: {s.name for s in stages if s.side == side} for side in ("source", "target")}
        found = self._document.get("connections")
        links = [c for c in found if isinstance(c, Mapping)] if isinstance(found, list) else []
        for number, link in enumerate(links):
            for field in link.keys() - {"from", "to"}:
                self._add(
                    "field-unknown",
                    f"connections[{number}].{field}",
                    f"connections[{number}] has no field {field}.",
                    "Take it away.",
                    Severity.WARNING,
                )
        # A list or mapping may stand in the place of a name.
        named = [(str(link.get("from")), str(link.get("to"))) for link in links]
        fits = [source in ends["source"] and target in ends["target"] for source, target in named]
        if fits != [True]:
            self._add(
                "connections-unfit",
                "connections",
                f"{len(links)} connections are given, and not one from the source to the target.",
                'Write one connection {"from": …, "to": …} with the names of both stages.',
            )


def _merge(mapping: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Put a mapping over another one, section by section."""
    for key, value in over.items():
        held = mapping.get(key)
        if isinstance(held, dict) and isinstance(value, Mapping):
            _merge(held, value)
        else:
            mapping[key] = value
