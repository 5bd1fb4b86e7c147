"""Unpack Debian's newest MySQL server and every library of it into a folder; installs nothing.

    python3 tools/unpack_mysql.py FOLDER

apt-get works with lists and a cache of its own, from the mirror that this machine uses already. Ends with 1 and one
line that says why where it cannot be had. Needs no root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

SUITE = "sid"
# The second one has the character sets and the messages.
PACKAGES = ("mysql-server-core", "mysql-server")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = Path("/etc/apt")
TIMEOUT_S = 120
NEEDED = ("apt-get", "apt-cache", "dpkg-deb")
# Reached by dependencies only, and not used by the server.
LEFT_OUT = re.compile(r"perl|^gcc-|gdbm|libdb5|modules|^debconf|^mysql-common")


class Unavailable(Exception):
    """The server cannot be had here; the text says why."""


def main() -> int:
    """Unpack into the folder of the command line; returns the exit status."""
    folder = Path(sys.argv[1])
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that it appears whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="mysql-") as scratch:
        try:
            unpack(Path(scratch)).rename(folder)
        except Unavailable as error:
            print(error)
            return 1
        except OSError as error:
            print(f"it could not be unpacked: {error.strerror}")
            return 1
    return 0


def unpack(scratch: Path) -> Path:
    """Return the folder with everything unpacked, below the one given."""
    for program in NEEDED:
        if shutil.which(program) is None:
            raise Unavailable(f"there is no `{program}`")
    if not KEYRING.exists():
        raise Unavailable(f"there is no {KEYRING}")
    options = apt(scratch, mirror())
    told(["apt-get", *options, "update", "-qq"], "the package lists could not be fetched")
    names = told(
        ["apt-cache", *options, "depends", "--recurse", "--no-recommends", "--no-suggests"]
        + ["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", PACKAGES[0]],
        f"the mirror has no {PACKAGES[0]}",
    )
    found = set(re.findall(r"^[\w.+-]+$", names, re.MULTILINE))
    wanted = sorted(name for name in {*found, *PACKAGES} if not LEFT_OUT.search(name))
    archives, target = scratch / "archives", scratch / "unpacked"
    archives.mkdir()
    target.mkdir()
    told(
        ["apt-get", *options, "download", "-qq", *wanted],
        "the packages could not be fetched",
        archives,
    )
    for archive in archives.glob("*.deb"):
        told(["dpkg-deb", "-x", str(archive), str(target)], f"{archive.name} could not be unpacked")
    return target


def mirror() -> str:
    """Return where this machine's Debian comes from."""
    for path in (SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))):
        if path.is_file():
            for address in addresses(path.read_text(errors="replace")):
                if re.search(r"/debian/?$", address):
                    return address
    raise Unavailable("no mirror of Debian is set up here")


def addresses(text: str) -> Iterator[str]:
    """Yield the addresses of a file of apt's sources, of either form."""
    yield from re.findall(
        r"^(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s*)?)(https?://\S+)", text, re.MULTILINE
    )


def apt(scratch: Path, address: str) -> list[str]:
    """Return the options that keep apt-get away from the machine's own state."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d"):
        (scratch / name).mkdir(parents=True)
    (scratch / "state" / "status").touch()
    sources = scratch / "etc" / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {address} {SUITE} main\n")
    settings = {
        "Dir::State": scratch / "state",
        "Dir::State::status": scratch / "state" / "status",
        "Dir::Cache": scratch / "cache",
        "Dir::Etc": scratch / "etc",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::http::Timeout": "15",
        "Acquire::Retries": "1",
        # Else a mirror that lacks the suite is only a warning.
        "APT::Update::Error-Mode": "any",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def told(command: Sequence[str], why: str, folder: Path | None = None) -> str:
    """Return what a program prints; says why when it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{why} within {TIMEOUT_S} s") from None
    if done.returncode:
        raise Unavailable(why)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
