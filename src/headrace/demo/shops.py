"""The shop on each database: what the traffic and the demo know of one, and which belongs to a URL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

__all__ = ["ShopKind", "Worker", "shop_of"]


class Worker(Protocol):
    """One customer-facing worker with a connection of its own, which is made again when it was lost."""

    with_channel: bool
    """Whether orders have their new column by now."""

    def act(self) -> bool:
        """Run one transaction of the mix; false when it lost against another one."""
        ...


@dataclass(frozen=True, slots=True)
class ShopKind:
    """The shop on one database.

    Attributes:
        tables: their names.
        fill: makes the tables and loads about so many rows; returns how many each table has.
        worker: makes one from the URL, its generator, the rows that were loaded, its number and how many there are.
        away: what a worker raises while the server is away; a transaction cut off may or may not be in.
        refused: what a step raises when the server refuses it.
        add_column: gives orders their new column; says what it did.
        change_much: runs one transaction of about so many changed rows; likewise.
        empty_table: empties a small table; likewise.
    """

    tables: tuple[str, ...]
    fill: Callable[[str, int], dict[str, int]]
    worker: Callable[[str, random.Random, int, int, int], Worker]
    away: type[Exception]
    refused: type[Exception]
    add_column: Callable[[str], str]
    change_much: Callable[[str, int], str]
    empty_table: Callable[[str], str]


def shop_of(url: str) -> ShopKind:
    """Return the shop of the database that a URL names."""
    if urlsplit(url).scheme == "mysql":
        from headrace.demo.mysql_shop import MYSQL

        return MYSQL
    from headrace.demo.postgres_shop import POSTGRES

    return POSTGRES
