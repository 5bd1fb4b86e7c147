"""Programs that a benchmark needs and the server's package does not bring; root gets them from Debian."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
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

__all__ = ["engine_command", "pgbench"]

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


def engine_command() -> list[str]:
    """Return the Java command that runs `Engine`, without options of the machine; compiles it when need be."""
    javac = _javac()
    jars = debezium_jars()
    path = ":".join(map(str, jars))
    text = _SOURCE.read_bytes() + path.encode()
    classes = jars[0].parent / f"engine-{hashlib.sha256(text).hexdigest()[:16]}"
    if not (classes / "Engine.class").exists():
        subprocess.run(
            [javac, "-proc:none", "-nowarn", "-d", str(classes), "-cp", path, str(_SOURCE)],
            check=True,
            capture_output=True,
        )
    return [str(Path(javac).with_name("java")), "-cp", f"{classes}:{path}", "Engine"]


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
