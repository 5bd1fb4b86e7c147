"""What the tests of this package share: a document over a database, and its problems by kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.replicator.assess.document import assess_document, read_document
from headrace.replicator.assess.estimates import LogSample
from headrace.replicator.assess.pipeline import PipelineAssessment
from headrace.replicator.assess.problems import Problem

Doc = dict[str, Any]


def document(url: str, folder: Path, **sections: Any) -> Doc:
    """Return the smallest file over a database, with sections over its own."""
    source = {"type": "postgres", "url": url, "tables": ["public.*"], **sections.pop("source", {})}
    target = sections.pop("target", {"type": "delta", "path": str(folder / "lake")})
    return {"name": "shop", "source": source, "target": target, **sections}


def unwatched(_written_bytes: Callable[[], int]) -> LogSample | None:
    """Stand for a look at the log that nobody takes."""
    return None


def assessed(doc: Doc, folder: Path) -> PipelineAssessment:
    return assess_document(read_document(doc, folder), sample=unwatched)


def problems(doc: Doc, folder: Path) -> dict[str, list[Problem]]:
    """Return the problems of a document by kind; each says what to do and what it costs."""
    found: dict[str, list[Problem]] = {}
    for problem in assessed(doc, folder).problems:
        assert problem.description.endswith((".", "…", ")")), problem
        assert problem.suggestion
        assert problem.kind.impact
        found.setdefault(problem.name, []).append(problem)
    return found
