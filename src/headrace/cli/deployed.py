"""What ``headrace deploy`` sends: a file as it is, or the name of a draft."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.replicator.document_file import parse
from headrace.replicator.relative_paths import make_absolute

__all__ = ["as_sent", "body_of"]


def body_of(
    file: Path | None, name: str | None, draft: str | None, *, is_here: bool
) -> tuple[str, dict[str, Any]]:
    """Return the replicator's name and the request's body.

    Args:
        file: of the configuration.
        name: of the replicator, that of the file when None.
        draft: in place of a file.
        is_here: whether the control plane means the same by a path.

    Raises:
        ConfigError: the arguments do not go together, or the file does not read.
    """
    if (file is None) is (draft is None):
        raise ConfigError(
            "deploy: either FILE or --draft says what to deploy.", next_step="give one of the two."
        )
    if file is None:
        if name is None:
            raise ConfigError(
                "deploy: a draft has no name of a replicator.", next_step="give one: --name NAME."
            )
        return name, {"draft": draft}
    document = as_sent(file, parse(file))
    if is_here:
        make_absolute(document, file.absolute().parent)
    chosen = name or document.get("name")
    if not isinstance(chosen, str) or not chosen:
        raise ConfigError(
            f"{file}: names no replicator.", next_step="add name to the file, or give --name NAME."
        )
    return chosen, {"config": document}


def as_sent(file: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as it arrives at a control plane.

    Raises:
        ConfigError: it holds what YAML has and JSON has not.
    """
    try:
        sent: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    except (TypeError, ValueError):
        # What Python says has the value in it.
        raise ConfigError(
            f"{file}: holds a value that cannot be sent, such as a date or a number without an end.",
            next_step="write it in quotes, as text.",
        ) from None
    return sent
