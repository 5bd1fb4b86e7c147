"""Programs that a benchmark needs and the server's package does not bring; root gets them from Debian."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.debezium.jars import debezium_jars
from tools.setup import (
    POSTGRES_BIN,
    POSTGRES_MAJOR,
    apt_has,
    apt_install,
    can_apt,
    without_new_cluster,
)

__all__ = ["engine_command", "go_command", "java_command", "pgbench"]

_JDK = "openjdk-17-jdk-headless"
_SOURCE = Path(__file__).with_name("debezium") / "Engine.java"


def pgbench() -> str:
    """Return the path of ``pgbench``, which drives loads at a given rate."""
    package = f"postgresql-{POSTGRES_MAJOR}"
    if not _found("pgbench") and can_apt() and apt_has(package):
        with without_new_cluster():
            apt_install(package)
    found = _found("pgbench")
    if found is None:
        raise SystemExit(f"pgbench is missing: install Debian's {package}, or run as root.")
    return found


def _found(name: str) -> str | None:
    beside = POSTGRES_BIN / name
    return str(beside) if beside.exists() else shutil.which(name)


def engine_command(connector: str = "postgres") -> list[str]:
    """Return the Java command that runs `Engine` with a connector, without options of the machine."""
    return java_command(_SOURCE, debezium_jars(connector))


def java_command(source: Path, jars: Sequence[Path]) -> list[str]:
    """Return the Java command that runs the class of a source file beside some jars; compiles it when need be."""
    javac = _javac()
    path = ":".join(map(str, jars))
    digest = hashlib.sha256(source.read_bytes() + path.encode()).hexdigest()
    classes = jars[0].parent / f"{source.stem.lower()}-{digest[:16]}"
    if not (classes / f"{source.stem}.class").exists():
        subprocess.run(
            [javac, "-proc:none", "-nowarn", "-d", str(classes), "-cp", path, str(source)],
            check=True,
            capture_output=True,
        )
    return [str(Path(javac).with_name("java")), "-cp", f"{classes}:{path}", source.stem]


def go_command(folder: Path) -> list[str]:
    """Return the command of a Go program, built when need be into the cache of the jars.

    Raises:
        SystemExit: there is no Go, or the program's modules cannot be fetched.
    """
    go = shutil.which("go")
    if go is None:
        raise SystemExit("go is missing: install it, or give --without-go.")
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((folder / name).read_bytes())
    cache = debezium_jars("mysql")[0].parent
    program = cache / f"{folder.name}-{digest.hexdigest()[:16]}"
    if not program.exists():
        done = subprocess.run(
            [go, "build", "-o", str(program), "."], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{folder.name} could not be built: {done.stderr[-1500:]}")
    return [str(program)]


def _javac() -> str:
    if shutil.which("javac") is None and can_apt() and apt_has(_JDK):
        apt_install(_JDK)
    found = shutil.which("javac")
    if found is None:
        raise SystemExit(
            f"javac is missing: install a JDK from 17 on (Debian's {_JDK}), or run as root; "
            "--without-debezium leaves it out."
        )
    return str(Path(found).resolve())
