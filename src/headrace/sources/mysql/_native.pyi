from collections.abc import Sequence

import pyarrow as pa

class Columns:
    def __init__(self, plan: Sequence[tuple[int, int, int, int, int, int]]) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def clear(self) -> None: ...
    def append(self, more: Columns) -> None: ...
    def take(
        self, place: int
    ) -> tuple[pa.Buffer | None, pa.Buffer, pa.Buffer | None, int, int]: ...

def walk(data: bytes, at: int, end: int, first: Columns, second: Columns) -> int: ...

class Events:
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def images(self, first: int, stop: int) -> int: ...

def walk_events(
    buffer: bytearray,
    events: Events,
    first: int,
    stop: int,
    pairs: bool,
    one: Columns,
    other: Columns,
) -> None: ...
def events_alike(
    buffer: bytearray, at: int, end: int, model: bytes, checksum: bool, most: int
) -> tuple[int, Events, int]: ...
def transactions_alike(
    buffer: bytearray,
    at: int,
    end: int,
    begin: int,
    described: bytes,
    model: bytes,
    checksum: bool,
    most: int,
) -> tuple[int, list[tuple[bytes, int, int, int]], Events]: ...
def result_row(payload: bytes, columns: Columns) -> None: ...
def result_rows(
    buffer: bytearray, at: int, end: int, columns: Columns, most: int
) -> tuple[int, int]: ...
