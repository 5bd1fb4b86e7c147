"""The two Delta jars: found, or fetched once, and checked against their hashes.

PySpark comes without Delta. ``jars.lock`` beside this module names the jars that headrace needs,
with their SHA-256. They are looked for in this order:

1. the folder that ``HEADRACE_JARS`` names, for networks that reach no repository;
2. the cache (``HEADRACE_CACHE``, by default ``~/.cache/headrace``, folder ``jars``);
3. Spark's own resolver, which puts them into the cache. ``HEADRACE_JAR_REPOSITORY`` names a
   repository to use in place of the resolver's default.

Only the third step needs a network. Sessions get the files by ``spark.jars``, so that nothing is
resolved when a session starts. ``python -m headrace.spark.jars`` fetches what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path

from headrace.errors import HeadraceError, Retry

__all__ = [
    "Jar",
    "JarsUnavailable",
    "delta_jars",
    "fetched",
    "locked_jars",
    "parse_lock",
    "resolve",
]

JARS_FOLDER_SETTING = "HEADRACE_JARS"
CACHE_SETTING = "HEADRACE_CACHE"
REPOSITORY_SETTING = "HEADRACE_JAR_REPOSITORY"

# Dependencies that Spark ships itself or that Delta loads only for features we do not use. The
# resolver treats them as patterns; without them it would fetch 33 jars instead of 2.
_LEFT_OUT = (
    "com.*:*",
    "org.*:*",
    "net.*:*",
    "jakarta.*:*",
    "javax.*:*",
    "io.unitycatalog:*",
    "io.delta:delta-kernel*",
)

# Generous for a slow line, short enough that a hanging one is noticed.
_RESOLVE_TIMEOUT_S = 900


class JarsUnavailable(HeadraceError):
    """A jar that Delta needs is neither there nor to be had, or is not the one we know."""

    retry = Retry.MANUAL


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of ``jars.lock``."""

    sha256: str
    """Hash of the whole file, hexadecimal."""
    coordinate: str
    """``group:artifact:version`` as the resolver knows it."""

    @property
    def file_name(self) -> str:
        """Name of the file in the cache and in a folder of jars."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def delta_jars() -> list[Path]:
    """Paths of the jars that a Delta session needs, in the order of ``jars.lock``.

    Files that are there are checked and returned; only when one is missing from the cache is the
    resolver started (seconds, needs a network and Java).

    Raises:
        JarsUnavailable: a jar is missing and cannot be fetched, or its hash is wrong.
    """
    folder = os.environ.get(JARS_FOLDER_SETTING)
    if folder:
        return [_from_folder(Path(folder), jar) for jar in locked_jars()]
    return fetched(locked_jars(), _LEFT_OUT)


def fetched(
    jars: Sequence[Jar],
    left_out: Sequence[str],
    *,
    folder: str = "jars",
    asked: Sequence[str] = (),
) -> list[Path]:
    """Paths of jars in the cache, in the order given; the resolver is started when one is missing.

    Args:
        jars: what is wanted, with hashes.
        left_out: dependencies that the resolver shall not follow, as patterns.
        folder: of the cache.
        asked: coordinates that the resolver starts from, when the jars follow from fewer than all of them.

    Raises:
        JarsUnavailable: a jar is missing and cannot be fetched, or its hash is wrong.
    """
    cache = _cache_folder(folder)
    if not all(_is_intact(cache / jar.file_name, jar) for jar in jars):
        with _one_at_a_time(cache):
            _fill(cache, jars, left_out, asked)
    return [cache / jar.file_name for jar in jars]


def locked_jars() -> list[Jar]:
    """What ``jars.lock`` lists: one jar a line, hash and coordinate; ``#`` starts a comment."""
    return parse_lock(resources.files("headrace.spark").joinpath("jars.lock").read_text())


def parse_lock(text: str) -> list[Jar]:
    """What the text of a lock file lists."""
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return [Jar(sha256=words[0], coordinate=words[1]) for words in lines if words]


def _cache_folder(name: str) -> Path:
    base = os.environ.get(CACHE_SETTING)
    root = Path(base) if base else Path.home() / ".cache" / "headrace"
    return root / name


def _from_folder(folder: Path, jar: Jar) -> Path:
    path = folder / jar.file_name
    if not path.is_file():
        raise JarsUnavailable(
            f"{path} is missing.",
            next_step=f"put {jar.coordinate} there, or unset {JARS_FOLDER_SETTING}.",
        )
    if not _is_intact(path, jar):
        raise JarsUnavailable(
            f"{path} is not the file that headrace was tested with (its SHA-256 differs).",
            next_step=f"replace it with {jar.coordinate} as published.",
        )
    return path


def _is_intact(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


@contextlib.contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Let one process fill the cache; the others wait and then find it full."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise JarsUnavailable(
            f"The jar cache {cache} cannot be written: {error.strerror}.",
            next_step=f"name a folder of your own in {CACHE_SETTING}.",
        ) from error


def _fill(cache: Path, jars: Sequence[Jar], left_out: Sequence[str], asked: Sequence[str]) -> None:
    """Fetch what is missing into the cache; a file appears under its name only when checked."""
    missing = [jar for jar in jars if not _is_intact(cache / jar.file_name, jar)]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=cache) as work:
        coordinates = list(asked) or [jar.coordinate for jar in missing]
        found = resolve(coordinates, Path(work), left_out)
        for jar in missing:
            _keep(jar, found, cache)


def _keep(jar: Jar, found: Path, cache: Path) -> None:
    group = jar.coordinate.split(":")[0]
    fetched = found / f"{group}_{jar.file_name}"
    if not fetched.is_file():
        raise JarsUnavailable(
            f"The resolver ended well but brought no {jar.coordinate}.", next_step=_by_hand()
        )
    if not _is_intact(fetched, jar):
        raise JarsUnavailable(
            f"The repository's {jar.coordinate} is not the file that headrace was tested with "
            "(its SHA-256 differs).",
            next_step=f"use another repository ({REPOSITORY_SETTING}), or {_by_hand()}",
        )
    partial = cache / f"{jar.file_name}.partial"
    shutil.copyfile(fetched, partial)
    partial.replace(cache / jar.file_name)


def resolve(coordinates: Sequence[str], work: Path, left_out: Sequence[str]) -> Path:
    """Let Spark's launcher fetch the coordinates; returns the folder that holds the jars.

    The launcher resolves before it starts the program it was given, and an empty Python program
    starts no session. An empty home folder keeps a user's own Maven cache out of it: there the
    resolver can meet descriptions without the jars they describe, and fails.
    """
    home, ivy, program = work / "home", work / "ivy", work / "nothing.py"
    home.mkdir()
    program.write_text("")
    command = [
        str(_spark_home() / "bin" / "spark-submit"),
        *("--master", "local[1]"),
        *("--packages", ",".join(coordinates)),
        *(("--exclude-packages", ",".join(left_out)) if left_out else ()),
        *("--conf", f"spark.jars.ivy={ivy}"),
        str(program),
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(_spark_home()),
        "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Duser.home={home}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    repository = os.environ.get(REPOSITORY_SETTING)
    if repository:
        environment["DEFAULT_ARTIFACT_REPOSITORY"] = repository
    print(f"headrace: fetching {' and '.join(coordinates)} …", flush=True)
    try:
        result = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_RESOLVE_TIMEOUT_S,
            cwd=work,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarsUnavailable(
            f"{' and '.join(coordinates)} could not be fetched: {type(error).__name__}.",
            next_step=_by_hand(),
        ) from error
    if result.returncode:
        raise JarsUnavailable(
            f"{' and '.join(coordinates)} could not be fetched: {_reason(result.stderr)}",
            next_step=_by_hand(),
        )
    return ivy / "jars"


def _spark_home() -> Path:
    """Folder of the installed pyspark, found without importing it."""
    found = util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise JarsUnavailable("pyspark is not installed.", next_step="install headrace's packages.")
    return Path(found.origin).parent


def _reason(output: str) -> str:
    """The lines of the launcher's report that say what went wrong."""
    if "JAVA_HOME is not set" in output or "java: not found" in output:
        return "Java, which does the fetching, was not found (17 or newer is needed)."
    if "PKIX path" in output or "SSLHandshakeException" in output:
        return (
            "Java does not trust the repository's certificate; a network that has one of its own needs it "
            "in Java's store too (keytool -importcert)."
        )
    signs = ("Exception", "unresolved", "UNRESOLVED", "timed out", "not found", "Server access")
    lines = [line.strip(": \t") for line in output.splitlines()]
    telling = [line for line in lines if any(sign in line for sign in signs)]
    return "; ".join(dict.fromkeys(telling[:3])) or "the resolver gave no reason."


def _by_hand() -> str:
    names = ", ".join(jar.file_name for jar in locked_jars())
    return (
        "check that this machine reaches a Maven repository (another one can be named in "
        f"{REPOSITORY_SETTING}), or put {names} into a folder and name it in "
        f"{JARS_FOLDER_SETTING}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what is missing and say so, or list the files; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m headrace.spark.jars", description="Delta jars")
    parser.add_argument("--list", action="store_true", help="print one path a line and no more")
    options = parser.parse_args(arguments)
    try:
        jars = delta_jars()
    except JarsUnavailable as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 1
    if options.list:
        print("\n".join(str(jar) for jar in jars))
    else:
        print(f"headrace: {len(jars)} Delta jars in {jars[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
