"""A dead letter where a replicator keeps them, as its apply job would have left it."""

from __future__ import annotations

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.registry.file import FileRegistry
from headrace.replicator.paths import StatePaths
from headrace.testing.notation import change_batch, parse_history, table_of

__all__ = ["put_letter"]


def put_letter(paths: StatePaths, scn: int) -> str:
    """Put aside one insert into ``public.orders``, and return the letter's name."""
    schema = table_of(2, name="orders")
    schema_id = FileRegistry(paths.registry).put(schema)
    batch = change_batch(schema, parse_history("+I(1,secret-of-a-row)", scn).rows)
    index = transaction_index([(scn, 5, 7, 1, ORIGIN_LOG, 1)])
    block = Block(index, (Body(schema_id, schema.table, batch),), (), scn)
    error = {"name": "MissingBase", "message": "a row is missing.", "next_step": "see to it."}
    letter = DeadLetter(schema.table, scn, 5, 1, {"+I": 1}, False, error, 9)
    DeadLetterStore(paths.dead_letters).put(letter, iter([block]))
    return f"{schema.table}@{scn}"
