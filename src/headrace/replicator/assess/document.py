"""Assessment of what is only a document yet: a file, a draft, a request's body; in our form or the design's.

In: a mapping, references unresolved. Out: the same values as of `headrace.replicator.assess.pipeline`, with what is
wrong with the document itself among the problems. References are resolved for the time of the assessment alone; what
they stand for is in none of its answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.replicator import config_file
from headrace.replicator.assess.pipeline import (
    PipelineAssessment,
    Sampler,
    TableAssessment,
    assess_pipeline,
    assess_source,
    assess_table,
)
from headrace.replicator.assess.problems import Problem, errors_in
from headrace.replicator.config import Config
from headrace.replicator.config_file import Mistake
from headrace.replicator.secret_references import references_in, written
from headrace.replicator.seed.read import SeedDocument, is_seed, read_seed

__all__ = [
    "Document",
    "assess_document",
    "assess_table_of_document",
    "configured",
    "load_document",
    "read_document",
    "source_configured",
]

_KINDS = {
    "unset": "secret-unresolved",
    "reference": "macro-unresolved",
    "lacking": "setting-unsupported",
    "key": "configuration",
}
_NO_SOURCE = Problem("configuration", "There is no source.", "Add one.", field="source")
_NO_TARGET = {"type": "parquet", "path": "unread"}
"""Stands for the target where only the source is asked."""
_SHORTEST_SECRET = 4
"""Shorter values are in too many words to be told from them."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    Attributes:
        mapping: in the words of our own file, references unresolved.
        config: what it says with references resolved, None where it does not read.
        problems: what is wrong with it.
        quiet: columns, with their tables, that may be in another type without being counted.
        about: what the design's form says for people alone: description and label.
        folder: where relative paths begin.
        seed: what was read of a document in the design's form, None for one in ours.
    """

    mapping: Mapping[str, Any]
    config: Config | None
    problems: tuple[Problem, ...]
    quiet: frozenset[tuple[TableId, str]] = frozenset()
    about: Mapping[str, str] | None = None
    folder: Path = Path()
    seed: SeedDocument | None = None

    def told(self, problem: Problem) -> Problem:
        """Return a problem as it may be shown: at the document's own place, and without what references stand for."""
        shown = replace(
            problem,
            description=self._hidden(problem.description),
            suggestion=self._hidden(problem.suggestion),
        )
        return replace(shown, field=self.seed.place_of(problem.field)) if self.seed else shown

    def _hidden(self, text: str) -> str:
        for value, reference in self._resolved():
            text = text.replace(value, reference)
        return text

    def _resolved(self) -> Iterator[tuple[str, str]]:
        """Yield the values of references, longest first, with what stands for them."""
        found = {
            form: f"${{{reference.place}}}"
            for reference in references_in(self.mapping)
            for form in written(reference, os.environ)
            if len(form) >= _SHORTEST_SECRET
        }
        yield from sorted(found.items(), key=lambda pair: -len(pair[0]))


def read_document(document: Mapping[str, Any], folder: Path, name: str = "") -> Document:
    """Read a document in our form or in the design's.

    Args:
        document: references unresolved.
        folder: where relative paths begin.
        name: of the replicator, for a document of the design; its own when empty.
    """
    seed = read_seed(document, name) if is_seed(document) else None
    mapping = seed.mapping if seed else dict(document)
    # What could not be read was said; that it is missing need not be said again.
    unread = {p.field for p in seed.problems} if seed else set()
    config, mistakes = config_file.read(mapping, folder)
    sides = {side for side in ("source", "target") if seed and side not in mapping}
    read = Document(
        mapping,
        config,
        (),
        seed.quiet if seed else frozenset(),
        seed.about if seed else None,
        folder,
        seed,
    )
    problems = list(seed.problems) if seed else []
    told = (_problem(read, mistake) for mistake in mistakes if mistake.place not in sides)
    problems += [problem for problem in told if problem.field not in unread]
    return replace(read, problems=tuple(problems))


def _problem(document: Document, mistake: Mistake) -> Problem:
    """Return a mistake as a problem at the document's own place."""
    place = mistake.place or "name"
    what, _, step = mistake.what.partition("; ")
    return document.told(
        Problem(
            _KINDS[mistake.kind],
            f"{place}: {what.rstrip('.')}.",
            f"{step[:1].upper()}{step[1:]}" if step else "Correct it there.",
            field=place,
        )
    )


def load_document(path: Path) -> Document:
    """Return what a file says, in either form.

    Raises:
        ConfigError: it cannot be read, or is no mapping in YAML or JSON.
    """
    path = path.absolute()
    return read_document(config_file.parse(path), path.parent)


def configured(document: Document) -> Config:
    """Return the configuration of a document that has no errors.

    Raises:
        ConfigError: naming all of them.
    """
    errors = errors_in(document.problems)
    if document.config is None or errors:
        raise _refused(errors)
    return document.config


def source_configured(document: Document) -> Config:
    """Return a configuration with the document's source, for whom the rest is of no interest.

    Its target is none: who lists the tables of a draft may not have chosen one yet.

    Raises:
        ConfigError: naming all errors of the source.
    """
    if document.config is not None:
        return document.config
    source = document.mapping.get("source")
    if source is None:
        raise _refused(errors_in(document.problems) or (_NO_SOURCE,))
    alone = {"name": document.mapping.get("name"), "source": source, "target": _NO_TARGET}
    config, mistakes = config_file.read(alone, document.folder)
    if config is None:
        raise _refused([_problem(document, mistake) for mistake in mistakes])
    return config


def _refused(errors: Sequence[Problem]) -> ConfigError:
    named = "".join(f"\n  - {p.field or p.name}: {p.description}" for p in errors)
    return ConfigError(
        f"The configuration has {len(errors)} problem{'s' if len(errors) != 1 else ''}.{named}",
        next_step=" ".join(dict.fromkeys(p.suggestion for p in errors)),
    )


def assess_document(document: Document, *, sample: Sampler | None = None) -> PipelineAssessment:
    """Assess the replicator that a document describes.

    Args:
        document: as it was read.
        sample: looks at the source's log; for a second when None.
    """
    if document.config is None:
        return PipelineAssessment("", (), (*document.problems, *_of_source(document)))
    found = assess_pipeline(document.config, sample=sample, quiet=document.quiet)
    problems = dict.fromkeys((*document.problems, *map(document.told, found.problems)))
    verdicts = tuple(
        replace(v, problems=tuple(map(document.told, v.problems))) for v in found.tables
    )
    return replace(found, tables=verdicts, problems=tuple(problems))


def _of_source(document: Document) -> Iterator[Problem]:
    """Yield what is wrong with the source of a document whose other parts do not read."""
    try:
        config = source_configured(document)
    except ConfigError:
        # It is among the document's own problems.
        return
    yield from map(document.told, assess_source(config))


def assess_table_of_document(
    document: Document, name: str, schema: str = "", database: str = ""
) -> TableAssessment:
    """Assess one table of the replicator that a document describes; arguments as of `assess_table`.

    Raises:
        UnknownTable: the source can be reached, and has no such table.
    """
    if document.config is None:
        table = TableId(schema or database or "public", name)
        return TableAssessment("", table, None, document.problems)
    found = assess_table(document.config, name, schema, database, quiet=document.quiet)
    problems = dict.fromkeys((*document.problems, *map(document.told, found.problems)))
    return replace(found, problems=tuple(problems))
