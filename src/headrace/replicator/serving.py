"""A control plane as the command line describes it, as settings; its own secrets are told from those of replicators."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.replicator import config_file
from headrace.replicator.control.plane import PlaneSettings
from headrace.replicator.control.reconcile import Limits
from headrace.replicator.control.references import names_in
from headrace.replicator.secret_references import SecretMissing, parse
from headrace.replicator.serve_config import ServeConfig

__all__ = ["plane_settings", "tokens_of"]

_REFERENCE = re.compile(r"\$\{([^}]*)\}")


def tokens_of(file: Path | None) -> ServeConfig | None:
    """Return who may ask, None where everybody on this machine may.

    Raises:
        ConfigError: the file does not read.
    """
    return None if file is None else config_file.load_serve(file)


def plane_settings(
    state: Path, database: str | None, tokens: Path | None, limits: Limits
) -> PlaneSettings:
    """Return the settings of a control plane that is started here.

    Args:
        state: its folder.
        database: URL, with references in the places of secrets; None for a file in the folder.
        tokens: file of who may ask.
        limits: what processes may take.

    Raises:
        ConfigError: a secret stands in clear, or is not set; or the folder's name is no text.
    """
    try:
        str(state.resolve()).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "--state: the folder's name is no text in UTF-8, as those of replicators' folders have to be.",
            next_step="rename it, or name another one.",
        ) from None
    hidden = {"env:HEADRACE_TOKEN"}
    if tokens is not None:
        hidden |= names_in(config_file.parse(tokens.absolute()))
    if database is not None:
        hidden |= names_in(database)
    return PlaneSettings(
        # Processes are found by this name of it, whatever a later start calls it.
        state.resolve(),
        None if database is None else _resolved(database),
        Path.cwd(),
        frozenset(hidden),
        limits=limits,
    )


def _resolved(url: str) -> str:
    try:
        in_clear = urlsplit(_REFERENCE.sub("", url)).password
    except ValueError:
        in_clear = "unknown"
    if in_clear:
        raise ConfigError(
            "--database: a password on a command line is read by everybody on this machine.",
            next_step="write ${env:NAME}, ${file:NAME} or ${keyring:NAME} in its place, and put it there.",
        )

    def found(match: re.Match[str]) -> str:
        reference = parse(match[1])
        if reference is None:
            raise ConfigError(
                "--database: an unknown reference.",
                next_step="write ${env:NAME}, ${file:NAME} or ${keyring:NAME}.",
            )
        try:
            return reference.value(os.environ)
        except SecretMissing as missing:
            raise ConfigError(f"--database: {missing}", next_step="see docs/serving.md.") from None

    return _REFERENCE.sub(found, url)
