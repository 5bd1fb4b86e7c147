"""Secrets come by reference: a configuration that is kept and shown names them, and never holds one.

In: a document as it was given. Out: nothing, or a refusal that names each place where a secret seems to stand in clear.
Values are judged by their names and their form alone, so that it holds for our own form of a configuration and for the
design's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.replicator.secret_references import parse, references_in, written
from headrace.replicator.seed.secrets import secure_names, variable_of

__all__ = ["names_in", "redacted", "refuse_secrets", "without"]

_REFERENCE = re.compile(r"\$\{[^}]*\}")
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token$|credential|webhook$|api[_.-]?key|access[_.-]?key|private[_.-]?key"
    r"|session[_.-]?token|account[_.-]?key|sas[_.-]?",
    re.IGNORECASE,
)
_SHORTEST_SECRET = 4
_PUBLIC = frozenset({"access_key_id"})
"""Names that look like secrets and stand for names."""
_PLACES = frozenset({"lineage.url"})
"""Addresses whose path may be a token, as a webhook's is; nothing in their names tells."""


def refuse_secrets(document: Mapping[str, Any], hidden: Collection[str] = ()) -> None:
    """Refuse a document that holds a secret in clear, or names one that is not for replicators.

    Args:
        document: as it was given.
        hidden: places of secrets that are the control plane's own.

    Raises:
        ConfigError: names every place, and no value.
    """
    places = list(_in_clear(document, ""))
    if places:
        raise ConfigError(
            f"The configuration holds secrets in clear: {', '.join(places)}.",
            next_step="write ${env:NAME}, ${file:NAME} or ${keyring:NAME} in its place, and put it there.",
        )
    taken = sorted(names_in(document) & set(hidden))
    if taken:
        raise ConfigError(
            f"The configuration refers to {', '.join(taken)}, which belongs to the control plane itself.",
            next_step="give the replicator a secret of its own.",
        )


def names_in(value: Any) -> set[str]:
    """Return where the secrets are that a document refers to, in either form: ``env:NAME``, ``file:NAME`` …."""
    given = {reference.place for reference in references_in(value)}
    for name in secure_names(value):
        # Read in either way, as the name stands in the design's form or would have to in the environment.
        given.add(f"env:{variable_of(name)}")
    return given


def without(environment: Mapping[str, str], hidden: Collection[str]) -> dict[str, str]:
    """Return an environment without the variables among some places of secrets."""
    return {name: value for name, value in environment.items() if f"env:{name}" not in hidden}


def redacted(text: str, places: Collection[str], environment: Mapping[str, str]) -> str:
    """Return a text with references in the places of what they stand for.

    No text of ours holds a secret; a library's may. Values that are too short to be told from other words stay.
    """
    forms = {
        form: place
        for place in places
        if (reference := parse(place)) is not None
        for form in written(reference, environment)
        if len(form) >= _SHORTEST_SECRET
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, f"${{{forms[form]}}}")
    return text


def _in_clear(value: Any, place: str) -> Iterator[str]:
    """Yield the places below a value at which a secret stands."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = f"{place}.{key}" if place else str(key)
            if _is_secret(str(key)) or below in _PLACES:
                yield from _values_in_clear(inner, below)
            else:
                yield from _in_clear(inner, below)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _in_clear(inner, f"{place}[{number}]")
    elif isinstance(value, str) and _url_holds_secret(value):
        yield place


def _values_in_clear(value: Any, place: str) -> Iterator[str]:
    """Yield the places at or below one of a secret's name that hold a value, and no reference."""
    if isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _values_in_clear(inner, f"{place}[{number}]")
    elif isinstance(value, Mapping):
        # A section: its own names say which of them are secrets.
        yield from _in_clear(value, place)
    elif isinstance(value, str):
        if not _is_reference(value):
            yield place
    elif value is not None and not isinstance(value, bool):
        yield place


def _is_secret(name: str) -> bool:
    return name.lower() not in _PUBLIC and bool(_SECRET.search(name))


def _is_reference(text: str) -> bool:
    return not _REFERENCE.sub("", text).strip()


def _url_holds_secret(text: str) -> bool:
    """Whether a URL has a password, in front of its host or among its parameters, or a text of libpq has one."""
    if re.search(r"(^|\s)(password|sslpassword|passfile)\s*=\s*[^$\s]", text):
        return True
    if "://" not in text:
        return False
    # A reference may hold what would end a URL's part.
    plain = _REFERENCE.sub("", text)
    try:
        parts = urlsplit(plain)
        password, query = parts.password, parse_qsl(parts.query)
    except ValueError:
        return "@" in plain
    return bool(unquote(password or "")) or any(value and _is_secret(name) for name, value in query)
