"""A reader in a process of its own: follows a log to an SCN and prints what it saw, for `test_processes`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from headrace.changelog import ChangeLogReader
from tests.changelog.windows import seen


def follow(folder: Path, last_scn: int) -> tuple[int, str]:
    """Return the number of rows up to ``last_scn`` and their digest; no look sees part of a transaction."""
    reader = ChangeLogReader(folder)
    digest = hashlib.sha256()
    position, rows = 0, 0
    while position < last_scn:
        if not reader.wait(position + 1, 60):
            raise TimeoutError(f"nothing came after {position}")
        for block in reader.blocks(position):
            for row in seen([block]):
                digest.update(repr(row).encode())
                rows += 1
            position = max(position, block.covered_scn)
    return rows, digest.hexdigest()


if __name__ == "__main__":
    print(*follow(Path(sys.argv[1]), int(sys.argv[2])))
