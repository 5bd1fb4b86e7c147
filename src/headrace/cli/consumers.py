"""What `headrace consume` runs: a consumer that somebody wrote, or one of our outputs by name."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from headrace.client import Checkpoints, Consumer
from headrace.errors import ConfigError

__all__ = ["OUTPUTS", "consumer_of", "own_checkpoints", "resolved"]

SECRET = "HEADRACE_WEBHOOK_SECRET"
"""The variable of the environment that holds the secret by which calls of a webhook are signed."""


def consumer_of(what: str, to: str | None, name: str) -> Consumer:
    """Return the consumer that a command line names.

    Args:
        what: name of an output, or ``MODULE:NAME`` of a class, or of a function that makes a consumer, or of one.
        to: where an output delivers; ``env:NAME`` for what the environment has under a name.
        name: of the consumer, where it is kept beside its data.

    Raises:
        ConfigError: there is no such consumer, or it cannot be made.
    """
    module, colon, member = what.partition(":")
    if not colon:
        if what not in OUTPUTS:
            raise ConfigError(
                f"consume: {what!r} is none of {', '.join(OUTPUTS)}, and no MODULE:CLASS.",
                next_step="write the module, a colon and the class: orders:Orders for class Orders in orders.py.",
            )
        return OUTPUTS[what](None if to is None else resolved(to, "consume: --to"), name)
    if to is not None:
        raise ConfigError(
            f"consume: --to says nothing to {what}.",
            next_step="leave it out; a consumer of your own knows where it delivers.",
        )
    return _made(what, _member(module, member))


def own_checkpoints(consumer: Consumer) -> Checkpoints | None:
    """Return the checkpoints that a consumer brings: itself, or what it has as ``checkpoints``."""
    if all(callable(getattr(consumer, name, None)) for name in ("load", "store")):
        return cast(Checkpoints, consumer)
    return getattr(consumer, "checkpoints", None)


# -- our outputs ----------------------------------------------------------------------------------


def _ndjson(to: str | None, _name: str) -> Consumer:
    from headrace.outputs import NdjsonOutput

    return NdjsonOutput(to)


def _noop(to: str | None, _name: str) -> Consumer:
    from headrace.outputs import NoopOutput

    if to is not None:
        raise ConfigError(
            "consume: --to says nothing to noop.", next_step="leave it out: noop only counts."
        )
    return NoopOutput()


def _http(to: str | None, _name: str) -> Consumer:
    from headrace.outputs import HttpOutput, WebhookSettings

    secret = os.environ.get(SECRET)
    settings = WebhookSettings(
        _needed(to, "http", "https://HOST/PATH"), None if secret is None else secret.encode()
    )
    return HttpOutput(settings)


def _sql(to: str | None, name: str) -> Consumer:
    place = _needed(
        to, "sql", "sqlite:FILE, duckdb:FILE, postgresql://HOST/DATABASE, or mysql://HOST/"
    )

    from headrace.lake.sql.session import Warehouse
    from headrace.outputs.sql import SqlOutput

    warehouse: Warehouse
    if place.startswith("sqlite:"):
        from headrace.lake.sql.sqlite_file import SqliteWarehouse

        warehouse = SqliteWarehouse(Path(place.removeprefix("sqlite:")))
    elif place.startswith("duckdb:"):
        from headrace.lake.sql.duckdb_file import DuckdbWarehouse

        warehouse = DuckdbWarehouse(Path(place.removeprefix("duckdb:")))
    elif place.startswith(("postgresql://", "postgres://")):
        from headrace.lake.sql.postgres import PostgresWarehouse

        warehouse = PostgresWarehouse(place)
    elif place.startswith(("mysql://", "mariadb://")):
        from headrace.lake.sql.mysql import MysqlWarehouse

        warehouse = MysqlWarehouse(place)
    else:
        # What was given may hold a password.
        raise ConfigError(
            "consume: --to of sql is neither an SQLite file, nor a DuckDB file, nor a database of PostgreSQL or MySQL.",
            next_step="write --to sqlite:FILE, --to duckdb:FILE, --to postgresql://HOST/DATABASE, or --to mysql://HOST/.",
        )
    return SqlOutput(warehouse, name)


OUTPUTS: dict[str, Callable[[str | None, str], Consumer]] = {
    "ndjson": _ndjson,
    "http": _http,
    "sql": _sql,
    "noop": _noop,
}
"""By the names that people say."""


def _needed(to: str | None, output: str, form: str) -> str:
    if not to:
        raise ConfigError(
            f"consume: {output} needs to know where to deliver.", next_step=f"add --to {form}."
        )
    return to


def resolved(to: str, option: str) -> str:
    """Return what an option says, from the environment where it is ``env:NAME``.

    Raises:
        ConfigError: there is no such variable.
    """
    if not to.startswith("env:"):
        return to
    name = to.removeprefix("env:")
    if name not in os.environ:
        raise ConfigError(
            f"{option} names the variable {name}, which is not set.",
            next_step=f"set {name} in the environment of this command.",
        )
    return os.environ[name]


# -- consumers of others --------------------------------------------------------------------------


def _member(module: str, name: str) -> Any:
    # As with `python -m`: what lies in this folder can be named.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"consume: module {module!r} cannot be imported: {error}.",
            next_step="call the command in the folder of the module, or install it and what it needs.",
        ) from error
    except Exception as error:
        raise _broken(module, error) from error
    try:
        return getattr(found, name)
    except AttributeError:
        raise ConfigError(
            f"consume: module {module!r} has no {name!r}.",
            next_step="name a class of it, behind the colon.",
        ) from None


def _made(what: str, member: Any) -> Consumer:
    if not isinstance(member, Consumer) and callable(member):
        try:
            member = member()
        except Exception as error:
            raise _broken(what, error) from error
    if not isinstance(member, Consumer):
        raise ConfigError(
            f"consume: {what} is no headrace.client.Consumer.",
            next_step="let the class inherit from it, or name a function without arguments that returns one.",
        )
    return member


def _broken(what: str, error: Exception) -> ConfigError:
    # The exception's own text may quote a secret; the traceback is there for whoever asks.
    return ConfigError(
        f"consume: {what} raised {type(error).__name__} before anything was delivered.",
        next_step="repair it; it is called without arguments. HEADRACE_DEBUG=1 shows the traceback.",
    )
