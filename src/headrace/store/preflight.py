"""Whether a store can hold tables: asked before anything is started that would need it."""

from __future__ import annotations

import uuid
from pathlib import Path

from headrace.errors import StoreUnfit
from headrace.store.base import store_of
from headrace.store.location import Location

__all__ = ["check_store"]


def check_store(lake: Location) -> None:
    """Write the same object twice, read it, list it, and remove it; a folder on this machine needs no such check.

    A server that passes over ``If-None-Match: *`` would let two writers both believe in their commit.

    Args:
        lake: folder of all tables.

    Raises:
        StoreUnfit: the second write succeeded, or what was written is not there.
        StoreRefused: the server wants other settings.
        StoreUnavailable: it gives no answer.
    """
    if isinstance(lake, Path):
        return
    store, folder = store_of(lake), lake / "_headrace" / "preflight"
    probe, ours = folder / uuid.uuid4().hex, uuid.uuid4().bytes
    store.put_if_absent(probe, ours)
    try:
        try:
            # Other bytes: a write that is answered twice would be taken for one.
            store.put_if_absent(probe, uuid.uuid4().bytes)
        except FileExistsError:
            pass
        else:
            raise StoreUnfit(
                f"The server of the bucket {lake.bucket.place} passes over If-None-Match: * and lets a file be "
                "written over that is there: two writers could both believe in their commit.",
                next_step="use a server that honours it, such as Amazon S3, or keep the tables in a folder.",
            )
        if store.read(probe) != ours or probe.name not in store.names(folder):
            raise StoreUnfit(
                f"The server of the bucket {lake.bucket.place} does not show at once what was written.",
                next_step="use a server whose listings are consistent, such as Amazon S3.",
            )
    finally:
        store.delete([probe])
