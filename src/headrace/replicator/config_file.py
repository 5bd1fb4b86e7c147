"""Reads a configuration file and reports every problem in it at once.

In: a YAML or JSON file, in our form or the design's. Out: a `Config` with absolute paths and resolved references
to secrets, or one `ConfigError` that lists field, expectation and next step of each problem. Values
of the file are never repeated in a message: any of them may be a secret.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.errors import ConfigError
from headrace.replicator.config import (
    ChangesConfig,
    Config,
    DuckdbTargetConfig,
    FilesConfig,
    MysqlConfig,
    MysqlTargetConfig,
    ParquetTargetConfig,
    PostgresConfig,
    PostgresTargetConfig,
    RelayConfig,
    RelaySourceConfig,
    StateConfig,
    TargetConfig,
    TriggerConfig,
)
from headrace.replicator.document_file import parse
from headrace.replicator.follower_config import FollowerConfig
from headrace.replicator.relay_config import FollowingRelayConfig
from headrace.replicator.secret_references import SecretMissing
from headrace.replicator.secret_references import parse as parse_reference
from headrace.replicator.serve_config import ServeConfig

__all__ = ["SECTIONS", "Mistake", "load", "load_relay", "load_serve", "parse", "read"]

_LOG = logging.getLogger(__name__)

_Model = TypeVar("_Model", bound=BaseModel)
_Relay = TypeVar("_Relay", bound=RelayConfig)

_NAME = re.compile(r"[\w.-]{1,60}")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_UNRESOLVED = "unset-secret"
"""Stands for what a reference did not give: the rest of the check goes on, and the file is refused anyway."""

SECTIONS: Mapping[Any, Mapping[Any, type[BaseModel]]] = {
    "source": {
        "postgres": PostgresConfig,
        "mysql": MysqlConfig,
        "trigger": TriggerConfig,
        "files": FilesConfig,
        "relay": RelaySourceConfig,
    },
    "target": {
        "delta": TargetConfig,
        "duckdb": DuckdbTargetConfig,
        "postgres": PostgresTargetConfig,
        "mysql": MysqlTargetConfig,
        "parquet": ParquetTargetConfig,
    },
}
"""The sections whose ``type`` says what else they hold."""
_CHECKED_BY: Mapping[type[BaseModel], str] = {
    Config: "preflight",
    FollowerConfig: "relay",
    ServeConfig: "serve --tokens",
}
"""The command that reads a file of each kind."""
_EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping of names to values",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "model_attributes_type": "a section with names and values",
    "model_type": "a section with names and values",
    "path_type": "a path",
    "string_type": "text",
    "tuple_type": "a list",
}
_PATTERNS = {
    "name": "lower-case letters, digits, - and _, starting with a letter, at most 40 characters",
    "source.tables": "a pattern schema.table such as public.*",
    "source.exclude": "a pattern schema.table such as audit.*",
    "source.slot": "lower-case letters, digits and _, at most 63 characters",
    "target.store.endpoint": "a URL such as https://host:9000, without user, password or path",
    "relay.listen": "host:port, such as 127.0.0.1:7070 or [::1]:7070",
    "metrics.listen": "host:port, such as 127.0.0.1:9108 or [::1]:9108",
    "spark.master": "local[N], spark://…, yarn, k8s://… or sc://…",
    "spark.driver_memory": "a number with k, m or g, such as 2g",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a configuration.

    Attributes:
        place: the key, empty for the whole.
        what: what is wrong there and what to do.
        kind: ``unset`` for a reference to a variable that is not there, ``reference`` for one that nobody knows,
            ``lacking`` for what source or target cannot do, ``key`` for everything else.
    """

    place: str
    what: str
    kind: Literal["unset", "reference", "lacking", "key"] = "key"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def read(document: Mapping[str, Any], folder: Path) -> tuple[Config | None, list[Mistake]]:
    """Return a configuration, and everything that is wrong with it; no secret stands in either.

    Args:
        document: as the file has it, references unresolved.
        folder: where relative paths begin.

    Returns:
        the configuration, None as soon as anything is wrong with it but what source or target cannot do.
    """
    config, mistakes = _validated(document, Config)
    if config is None or mistakes:
        return None, mistakes
    config = _with_absolute_paths(config, folder)
    mistakes += [Mistake(place, what, "lacking") for place, what in _what_a_relay_lacks(config)]
    return config, mistakes


def load(path: Path) -> Config:
    """Return the configuration in ``path``.

    Raises:
        ConfigError: naming every problem, each with what to do; or, where there is none, what the target lacks.
    """
    path = path.absolute()
    document = _in_our_form(path, parse(path))
    if _follows(document):
        raise ConfigError(
            f"{path}: describes a relay that reads from another one, and no replicator.",
            next_step=f"start it with: headrace relay {path.name}",
        )
    config = _checked(path, document, Config)
    _refuse_what_a_relay_lacks(path, config)
    try:
        _refuse_what_the_target_lacks(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", next_step=error.next_step) from None
    return _with_absolute_paths(config, path.parent)


def load_relay(path: Path) -> Config | FollowerConfig:
    """Return the configuration of a replicator, or of a relay that reads from another one.

    Raises:
        ConfigError: as `load`.
    """
    path = path.absolute()
    document = parse(path)
    if not _follows(document):
        return load(path)
    config = _checked(path, document, FollowerConfig)
    return config.model_copy(
        update={
            "relay": _with_absolute_upstream(
                _with_absolute_relay_paths(config.relay, path.parent), path.parent
            ),
            "state": _absolute_state(config, path.parent),
        }
    )


def load_serve(path: Path) -> ServeConfig:
    """Return who may ask a control plane, and how.

    Raises:
        ConfigError: naming every problem.
    """
    path = path.absolute()
    config = _checked(path, parse(path), ServeConfig)
    if config.tls is None:
        return config
    files = {
        name: _absolute(path.parent, getattr(config.tls, name)) for name in ("certificate", "key")
    }
    return config.model_copy(update={"tls": config.tls.model_copy(update=files)})


def _in_our_form(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in our form; one in the design's is read as assessment reads it.

    Raises:
        ConfigError: the design's form asks for what there is not.
    """
    outer = (document, document.get("config"), document.get("deltaConfig"))
    if not any(isinstance(one, dict) and "stages" in one for one in outer):
        return document
    # Rare, and not for every process to carry along.
    from headrace.replicator.seed.read import read_seed

    read = read_seed(document)
    errors = [problem for problem in read.problems if problem.is_error]
    if errors:
        listed = "".join(f"\n  - {p.field or 'secrets'}: {p.description}" for p in errors)
        raise ConfigError(
            f"{path}: {len(errors)} problem{'s' if len(errors) != 1 else ''}.{listed}",
            next_step=f"correct {path.name}; what to do about each is said by: headrace assess {path.name}",
        )
    for problem in read.problems:
        _LOG.warning("%s: %s %s", path.name, problem.field, problem.description)
    return read.mapping


def _follows(document: Mapping[str, Any]) -> bool:
    relay = document.get("relay")
    return isinstance(relay, dict) and "upstream" in relay


def _checked(path: Path, document: dict[str, Any], model: type[_Model]) -> _Model:
    """Return the document as a configuration of some kind.

    Raises:
        ConfigError: naming every problem.
    """
    config, problems = _validated(document, model)
    if problems or config is None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        check = _CHECKED_BY[model]
        raise ConfigError(
            f"{path}: {len(problems)} problem{'s' if len(problems) != 1 else ''}.{listed}",
            next_step=f"correct {path.name} as said above, then check it with: "
            f"headrace {check} {path.name}",
        )
    return config


def _validated(
    document: Mapping[str, Any], model: type[_Model]
) -> tuple[_Model | None, list[Mistake]]:
    """Return the document as a configuration of some kind, and what is wrong with it."""
    mistakes: list[Mistake] = []
    resolved = _resolve(dict(document), "", mistakes)
    try:
        return model.model_validate(resolved), mistakes
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=True)
        found = [_describe(detail, model) for detail in details]
    # What a reference would have given is not judged.
    unknown = {mistake.place for mistake in mistakes}
    return None, mistakes + [mistake for mistake in found if mistake.place not in unknown]


def _refuse_what_a_relay_lacks(path: Path, config: Config) -> None:
    """Refuse what asks the database for rows, where none is named."""
    for place, what in _what_a_relay_lacks(config):
        problem, _, step = what.partition("; ")
        raise ConfigError(f"{path}: {place} {problem}.", next_step=step)


def _what_a_relay_lacks(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that ask the database for rows, where none is named, each with what to do."""
    if not isinstance(config.source, RelaySourceConfig):
        return
    asked = {"changes.incompatible": config.changes.incompatible == "recopy"}
    for name, table in config.tables.items():
        asked[f"tables.{name}.changes.incompatible"] = table.changes.incompatible == "recopy"
        asked[f"tables.{name}.first_copy"] = table.first_copy == "adopted"
    for place, is_asked in asked.items():
        if is_asked:
            yield (
                place,
                (
                    "takes rows from the database, and the source is a relay; "
                    f"leave {place} out, or keep this target where the source's capture runs."
                ),
            )


def _refuse_what_the_target_lacks(config: Config) -> None:
    if config.tables or config.changes != ChangesConfig():
        # What is asked for is said in terms of Arrow; a file that asks for nothing does without.
        from headrace.replicator.asked import refuse_what_the_target_lacks

        refuse_what_the_target_lacks(config)


def _resolve(value: Any, place: str, problems: list[Mistake]) -> Any:
    """Put secrets in the places of their references everywhere below ``value``."""
    if isinstance(value, dict):
        return {
            str(k): _resolve(v, f"{place}.{k}" if place else str(k), problems)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_resolve(v, f"{place}[{i}]", problems) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        reference = parse_reference(match[1])
        if reference is None:
            told = "an unknown reference; write ${env:NAME}, ${file:NAME} or ${keyring:NAME}."
            problems.append(Mistake(place, told, "reference"))
            return _UNRESOLVED
        try:
            return reference.value(os.environ)
        except SecretMissing as missing:
            problems.append(Mistake(place, str(missing), "unset"))
            return _UNRESOLVED

    return _REFERENCE.sub(replace, value)


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> Mistake:
    kind = detail["type"]
    place = _render_place(_untagged(detail["loc"]))
    if kind == "extra_forbidden":
        *above, name = _untagged(detail["loc"])
        if not _NAME.fullmatch(str(name)):
            # A line that is no name of anything, such as one of a file of passwords, is not repeated.
            place = _render_place((*above, f"(a name of {len(str(name))} letters)"))
            return Mistake(place, "unknown name; write NAME: VALUE, with a blank behind the colon.")
        return Mistake(place, f"unknown name; {_nearest(detail['loc'], model)}")
    if kind == "missing":
        return Mistake(place, "missing; add it.")
    if kind == "union_tag_not_found":
        return Mistake(f"{place}.type", "missing; add it.")
    if kind == "union_tag_invalid":
        return Mistake(f"{place}.type", f"expected one of {detail['ctx']['expected_tags']}.")
    return Mistake(place, f"expected {_expectation(detail)}.")


def _untagged(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a place as the file has it: without the kind of source or target, which is a value there."""
    if len(loc) > 1 and loc[1] in SECTIONS.get(loc[0], {}):
        return loc[:1] + loc[2:]
    return loc


def _expectation(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "string_pattern_mismatch":
        if detail["loc"][-1] == "[key]":
            return "a table schema.table"
        loc = _untagged(detail["loc"])
        field = ".".join(str(part) for part in loc if not isinstance(part, int))
        return _PATTERNS.get(field, "another form").strip()
    if kind == "value_error":
        return str(context.get("error", "another value"))
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "too_short":
        return "at least one entry"
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    return detail["msg"].removeprefix("Input should be ")


def _render_place(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _nearest(loc: tuple[int | str, ...], kind: type[BaseModel]) -> str:
    known = sorted(_fields_at(loc[:-1], kind))
    close = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known names are {', '.join(known)}."


def _fields_at(loc: tuple[int | str, ...], kind: type[BaseModel]) -> Mapping[str, Any]:
    model: Any = kind
    if loc and loc[0] in SECTIONS:
        model, loc = SECTIONS[loc[0]][loc[1]], loc[2:]
    for part in loc:
        if isinstance(part, int) or get_origin(model) is dict:
            # An entry of a list, or of names that people choose.
            model = _section_in(model)
            continue
        annotation = model.model_fields[str(part)].annotation
        model = annotation if get_origin(annotation) in (dict, tuple) else _section_in(annotation)
    fields: Mapping[str, Any] = model.model_fields
    return fields


def _section_in(annotation: Any) -> Any:
    """Return the section that a field holds, alone, optionally, or as the values of a list or mapping."""
    return next(
        (one for one in (annotation, *get_args(annotation)) if hasattr(one, "model_fields")),
        annotation,
    )


def _with_absolute_paths(config: Config, base: Path) -> Config:
    """Make paths absolute; relative ones start at the file's folder."""
    target = config.target
    if not isinstance(target, PostgresTargetConfig | MysqlTargetConfig) and isinstance(
        target.path, Path
    ):
        target = target.model_copy(update={"path": _absolute(base, target.path)})
    source = config.source
    if isinstance(source, RelaySourceConfig) and source.ca is not None:
        source = source.model_copy(update={"ca": _absolute(base, source.ca)})
    elif isinstance(source, FilesConfig):
        source = source.model_copy(update={"path": _absolute(base, source.path)})
    lineage = config.lineage
    if lineage is not None and lineage.file is not None:
        lineage = lineage.model_copy(update={"file": _absolute(base, lineage.file)})
    return config.model_copy(
        update={
            "source": source,
            "target": target,
            "lineage": lineage,
            "relay": _with_absolute_relay_paths(config.relay, base) if config.relay else None,
            "state": _absolute_state(config, base),
        }
    )


def _absolute_state(config: Config | FollowerConfig, base: Path) -> StateConfig:
    folder = config.state.dir or Path(".headrace") / config.name
    return config.state.model_copy(update={"dir": _absolute(base, folder)})


def _with_absolute_relay_paths(relay: _Relay, base: Path) -> _Relay:
    tls, routes = relay.tls, relay.routes
    if tls is not None:
        files = {name: _absolute(base, getattr(tls, name)) for name in ("certificate", "key")}
        tls = tls.model_copy(update=files)
    if isinstance(routes, Path):
        routes = _absolute(base, routes)
    return relay.model_copy(update={"tls": tls, "routes": routes})


def _with_absolute_upstream(relay: FollowingRelayConfig, base: Path) -> FollowingRelayConfig:
    if relay.upstream.ca is None:
        return relay
    upstream = relay.upstream.model_copy(update={"ca": _absolute(base, relay.upstream.ca)})
    return relay.model_copy(update={"upstream": upstream})


def _absolute(base: Path, path: Path) -> Path:
    return Path(os.path.normpath(base / path.expanduser()))
