from collections.abc import Sequence

import pyarrow as pa

from headrace.model.schema import TableSchema
from headrace.sources.postgres.decoder import Decoder

def NativeDecoder(epoch_xid: int, max_rows: int, max_bytes: int) -> Decoder: ...
def copy_columns(
    data: bytes | bytearray | memoryview, start: int, schema: TableSchema, forms: Sequence[int]
) -> list[pa.Array] | None: ...
def append_copy_data(
    data: bytearray, start: int, end: int, piece: bytearray, limit: int
) -> int: ...
