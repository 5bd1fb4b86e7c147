"""What ``headrace deploy`` sends: a file as it is, or the name of a draft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from headrace.errors import ConfigError
from headrace.replicator.relative_paths import make_absolute

__all__ = ["body_of", "document_in"]


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
    document = document_in(file)
    if is_here:
        make_absolute(document, file.absolute().parent)
    chosen = name or document.get("name")
    if not isinstance(chosen, str) or not chosen:
        raise ConfigError(
            f"{file}: names no replicator.", next_step="add name to the file, or give --name NAME."
        )
    return chosen, {"config": document}


def document_in(file: Path) -> dict[str, Any]:
    """Return what a file holds, references unresolved.

    Raises:
        ConfigError: it does not read; no line of it is repeated.
    """
    try:
        text = file.read_text(encoding="utf-8")
        document = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file}: cannot be read as YAML or JSON ({type(error).__name__}).",
            next_step="name an existing file with names and values.",
        ) from None
    if not isinstance(document, dict):
        raise ConfigError(
            f"{file}: holds no mapping of names to values.",
            next_step="start from the smallest form: name, source and target; see the README.",
        )
    return document
