"""What stands for a secret in a configuration, and where the secret itself is: environment, file or keyring.

``${env:NAME}`` is a variable of the environment, ``${file:NAME}`` a file of that name in the secrets folder
(`FOLDER_VARIABLE`), ``${keyring:NAME}`` an entry of the operating system's keyring under the service ``headrace``.
``url`` ahead of the kind, as in ``${urlfile:NAME}``, escapes the value for a part of a URL. A name never leads out of
its place, so who may write a configuration may not read other files with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = [
    "DEFAULT_FOLDER",
    "FOLDER_VARIABLE",
    "Reference",
    "SecretMissing",
    "parse",
    "references_in",
    "written",
]

FOLDER_VARIABLE = "HEADRACE_SECRETS"
"""Environment variable with the secrets folder."""
DEFAULT_FOLDER = "/run/secrets"
"""Where container platforms put them."""

_SERVICE = "headrace"
_MOST_BYTES = 64 * 1024
_INNER = re.compile(
    r"(url)?(?:(env):([A-Za-z_][A-Za-z0-9_]*)|(file|keyring):([A-Za-z0-9][A-Za-z0-9._-]{0,199}))"
)
_OUTER = re.compile(r"\$\{([^}]*)\}")


class SecretMissing(Exception):
    """A secret is not where its reference says; the text says what to do, and is no secret."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One of them.

    Attributes:
        kind: ``env``, ``file`` or ``keyring``.
        name: there.
        escaped: whether the value is escaped for a URL.
    """

    kind: str
    name: str
    escaped: bool = False

    @property
    def place(self) -> str:
        """Where the secret is; the same of both forms of a reference."""
        return f"{self.kind}:{self.name}"

    def value(self, environment: Mapping[str, str]) -> str:
        """Return what it stands for.

        Raises:
            SecretMissing: it is not there.
        """
        found = _FIND[self.kind](self.name, environment)
        return quote(found, safe="") if self.escaped else found


def parse(inner: str) -> Reference | None:
    """Return the reference between the braces, None where that is none."""
    match = _INNER.fullmatch(inner)
    if match is None:
        return None
    return Reference(match[2] or match[4], match[3] or match[5], match[1] is not None)


def references_in(value: Any) -> Iterator[Reference]:
    """Yield the references in all texts below a value."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from references_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references_in(inner)
    elif isinstance(value, str):
        for match in _OUTER.finditer(value):
            reference = parse(match[1])
            if reference is not None:
                yield reference


def written(reference: Reference, environment: Mapping[str, str]) -> set[str]:
    """Return the forms in which a secret may stand in a text; none where it is not there."""
    try:
        value = Reference(reference.kind, reference.name).value(environment)
    except SecretMissing:
        return set()
    escaped = {quote(value, safe=""), quote(value), quote_plus(value)}
    return {value, *escaped, json.dumps(value)[1:-1]}


def _of_environment(name: str, environment: Mapping[str, str]) -> str:
    try:
        return environment[name]
    except KeyError:
        raise SecretMissing(
            f"the environment variable {name} is not set; set it before starting headrace."
        ) from None


def _of_file(name: str, environment: Mapping[str, str]) -> str:
    path = Path(environment.get(FOLDER_VARIABLE) or DEFAULT_FOLDER) / name
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise SecretMissing(
            f"the secret {name} cannot be read in the folder that {FOLDER_VARIABLE} names ({why}); put it there."
        ) from None
    if len(data) > _MOST_BYTES:
        raise SecretMissing(f"the secret {name} has more than {_MOST_BYTES:,} bytes.")
    # An editor ends a file with a line's end, and no secret does.
    return text.rstrip("\r\n")


def _of_keyring(name: str, _: Mapping[str, str]) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SecretMissing(
            "keyrings are read by the package keyring; install it: pip install 'headrace[keyring]'."
        ) from None
    try:
        found = keyring.get_password(_SERVICE, name)
    except KeyringError as error:
        raise SecretMissing(
            f"the keyring does not give {name} ({type(error).__name__}); unlock it."
        ) from None
    if found is None:
        raise SecretMissing(
            f"the keyring has no {name}; put it there: keyring set {_SERVICE} {name}."
        )
    return str(found)


_FIND = {"env": _of_environment, "file": _of_file, "keyring": _of_keyring}
