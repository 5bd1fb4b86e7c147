"""Whether the rows of a large table have a key each of their own, in bounded memory.

Each key becomes 16 bytes; these are dealt into temporary files by their beginning, so that equal ones meet in the same
file, and one file at a time is looked through.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np
import pyarrow as pa

from headrace.model.rowkey import encode_rows

__all__ = ["KeysOnce"]

_BYTES = 16
_FILE_KEYS = 4_000_000
_MOST_FILES = 256


class KeysOnce:
    """Takes keys in, and counts those that came more than once.

    Args:
        rows: that will come, about.
        folder: for the temporary files, which have no name in it.
    """

    def __init__(self, rows: int, folder: Path) -> None:
        count = min(max(1, -(-rows // _FILE_KEYS)), _MOST_FILES)
        self._held = ExitStack()
        self._files: list[IO[bytes]] = []
        for _ in range(count):
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `__exit__`
            self._files.append(self._held.enter_context(file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def add(self, columns: list[pa.Array]) -> None:
        """Take the keys of some rows: the columns of the key, of equal length."""
        keys = encode_rows(columns).to_pylist()
        texts = b"".join(blake2b(key, digest_size=_BYTES).digest() for key in keys)
        digests = np.frombuffer(texts, np.uint8).reshape(-1, _BYTES)
        places = digests[:, 0].astype(np.int64) * len(self._files) >> 8
        for place in np.unique(places).tolist():
            self._files[place].write(digests[places == place].tobytes())

    def repeated(self) -> int:
        """Return how many rows have a key that came before."""
        count = 0
        for file in self._files:
            file.seek(0)
            digests = np.frombuffer(file.read(), f"S{_BYTES}")
            count += len(digests) - len(_distinct(digests))
        return count


def _distinct(
    digests: np.ndarray[tuple[int], np.dtype[np.bytes_]],
) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    # As numbers: texts that end in zeros would be cut.
    return np.unique(digests.view(np.uint64).reshape(-1, _BYTES // 8), axis=0)
