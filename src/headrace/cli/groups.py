"""``headrace group``: groups of consumers, from beside them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import AsJson
from headrace.cli.stream import Authority
from headrace.plural import counted

if TYPE_CHECKING:
    from headrace.client import SqlGroupStore
    from headrace.client.group_state import GroupState
    from headrace.client.start import Start
    from headrace.wire.place import Place

__all__ = ["group"]

group = typer.Typer(
    help=(
        "Look after groups of consumers.\n\n"
        "What is asked for is carried out by the members, those that come later too; see it done with "
        "[bold]headrace group show[/bold].\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace group show sqlite:///groups.db mail\n\n"
        "  headrace group rewind sqlite:///groups.db mail --to 81\n\n"
        "  headrace group resize sqlite:///groups.db mail --partitions 12"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

StoreUrl = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="The database that its members share, as SqlGroupStore has it; env:NAME takes it from the environment.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the group.")]


@group.command()
@errors_without_traceback
def show(store: StoreUrl, name: Name, as_json: AsJson = False) -> None:
    """Show members, owners and places of a group.

    [bold]Example[/bold]  headrace group show sqlite:///groups.db mail
    """
    state = _state(_opened(store), name)
    if as_json:
        said = asdict(state) | {"definition": json.loads(state.definition)}
        for told, partition in zip(said["partitions"], state.partitions, strict=True):
            told["place"] = str(partition.place)
        typer.echo(json.dumps(said, indent=2))
        return
    for goal, what in (("target", "partitions wanted"), ("rewind", "rewind to SCN")):
        if getattr(state, goal) is not None:
            console.print(f"{what}: {getattr(state, goal)}")
    for partition in state.partitions:
        owner = partition.owner or "nobody"
        console.print(f"{partition.number:>5}  {partition.place}  {owner}")


@group.command()
@errors_without_traceback
def rewind(
    store: StoreUrl,
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="oldest, newest, an SCN that was processed already, a time, or how long ago (90s, 10m, 2h, 1d).",
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL_OR_FILE]...",
            help="Relays, or a replicator's file, that tell what oldest, newest and a time are.",
        ),
    ] = None,
    authority: Authority = None,
) -> None:
    """Deliver everything behind a place once more, to the whole group, whether or not its members run.

    [bold]Examples[/bold]
      headrace group rewind sqlite:///groups.db mail --to 81
      headrace group rewind sqlite:///groups.db mail http://127.0.0.1:7070 --to oldest
    """
    from headrace.cli.stream import start_of
    from headrace.client.group_state import rewind

    held = _opened(store)
    state = _state(held, name)
    place = _placed(start_of(to, option="--to"), where, state, authority)
    held.change(name, lambda state, _: rewind(state, place.after_scn))
    console.print(f"{name} begins again behind SCN {place.after_scn}")


@group.command()
@errors_without_traceback
def resize(
    store: StoreUrl,
    name: Name,
    partitions: Annotated[int, typer.Option(help="How many there shall be.")],
) -> None:
    """Ask for another count of partitions; for the one that there is, call off what was asked for before.

    [bold]Example[/bold]  headrace group resize sqlite:///groups.db mail --partitions 12
    """
    from headrace.client.group_state import resize

    _opened(store).change(name, lambda state, _: resize(state, partitions))
    console.print(f"{name} goes on with {counted(partitions, 'partition')}")


def _opened(url: str) -> SqlGroupStore:
    from sqlalchemy.exc import ArgumentError

    from headrace.cli.consumers import resolved
    from headrace.client import SqlGroupStore
    from headrace.errors import ConfigError

    try:
        return SqlGroupStore(resolved(url, "group: STORE"))
    except ArgumentError as error:
        # What was given may hold a password.
        raise ConfigError(
            "group: STORE is no address of a database.",
            next_step="write sqlite:///FILE or postgresql+psycopg://HOST/DATABASE, as the members do.",
        ) from error


def _state(store: SqlGroupStore, name: str) -> GroupState:
    from headrace.errors import ConfigError

    state = store.read(name)
    if state is None:
        raise ConfigError(
            f"There is no group {name} in this database.",
            next_step="name the one that its members name; it is there once one of them ran.",
        )
    return state


def _placed(to: Start, where: list[str] | None, state: GroupState, authority: Path | None) -> Place:
    """Return the place that ``--to`` is now."""
    import random

    from headrace.cli.stream import stream_of
    from headrace.client import Settings
    from headrace.client.relays import Relays
    from headrace.client.start import resolve_once
    from headrace.errors import ConfigError
    from headrace.wire.place import Place

    if isinstance(to, Place):
        return to
    if not where:
        raise ConfigError(
            "group rewind: only a relay knows where that is.",
            next_step="name a relay, or the replicator's file, behind the group; or give an SCN.",
        )
    stream = stream_of(where, json.loads(state.definition)["source"], authority)
    settings = Settings()
    relays = Relays(
        stream.urls,
        stream.source,
        stream.http,
        max_block_bytes=settings.max_block_bytes,
        backoff=settings.reconnect,
        rng=random.Random(),
    )
    return resolve_once(relays, stream.source, to, lambda _: False)
