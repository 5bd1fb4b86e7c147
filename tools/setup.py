"""Make this clone ready to run: Python packages, Java, Delta jars and, for tests, databases and an object store.

Needs a Python of at least 3.11 and nothing else; uses only the standard library. A stamp in the
virtual environment remembers what was set up from which files, so a second run returns at once.

    python3 tools/setup.py            what `headrace demo` and `headrace run` need
    python3 tools/setup.py --tests    the same and the servers of the tests: PostgreSQL, MariaDB, MySQL, an object store
    python3 tools/setup.py --lock     rewrite requirements.lock from pyproject.toml
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "headrace-setup.json"

# Installed by pip from the lock before everything else: the installer itself, and what the one
# package that comes as source (pyspark) is built with.
FIRST = ("uv", "setuptools")

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
POSTGRES_MAJOR = "15"
POSTGRES_BIN = Path(f"/usr/lib/postgresql/{POSTGRES_MAJOR}/bin")

# The programs alone: the package around them would make a server of the system and start it. The second one has a
# small program that the first one's set-up of a data folder calls.
MARIADB = Path("/usr/sbin/mariadbd")
MARIADB_PACKAGES = {
    MARIADB: "mariadb-server-core",
    Path("/usr/bin/my_print_defaults"): "mariadb-client-core",
}

# An S3 gateway over a folder, in Go; it honours If-None-Match: * under its own lock.
OBJECT_STORE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

NATIVE = [f"src/headrace/sources/{part}native" for part in ("", "mysql/", "postgres/")]

# What the stamp depends on: a change in any of these runs the steps again. Of pyproject.toml only
# the parts that say what is installed count; settings of linters do not.
EXTENSION_SOURCES = (
    "tools/build_extensions.py",
    "src/headrace/sources/mysql/_native.pyx",
    "src/headrace/sources/postgres/_native.pyx",
    *(f"{part}/{path.name}" for part in NATIVE for path in sorted((ROOT / part).glob("*.pxi"))),
)
STAMPED = (
    "requirements.lock",
    "tools/setup.py",
    "tools/unpack_mysql.py",
    "src/headrace/spark/archive.py",
    "src/headrace/spark/jars.py",
    "src/headrace/spark/jars.lock",
    *EXTENSION_SOURCES,
)
STAMPED_ENVIRONMENT = ("JAVA_HOME", "HEADRACE_JARS", "HEADRACE_CACHE")


class SetupError(Exception):
    """A step that cannot go on without a person; its text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that the stamp does not vouch for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make this clone ready to run.")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    parser.add_argument("--lock", action="store_true", help="rewrite requirements.lock and stop")
    options = parser.parse_args(arguments)
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise SetupError(
                f"Python {sys.version.split()[0]} is too old: headrace needs 3.11 or newer. "
                "Install one and run `make PYTHON=python3.11 …`."
            )
        if options.lock:
            write_lock()
            return 0
        state = read_stamp()
        if is_ready(state, tests=options.tests):
            return 0
        with one_at_a_time():
            state = read_stamp()
            if not is_ready(state, tests=options.tests):
                set_up(tests=options.tests)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


def set_up(*, tests: bool) -> None:
    """Run every step in order and stamp the result."""
    started = time.monotonic()
    old = read_stamp()
    STAMP.unlink(missing_ok=True)
    packages = package_fingerprint()
    anew = old.get("packages") != packages
    proof: dict[str, object] = {"packages": packages}
    # What waits for the network or for one core goes on beside the rest: Debian's packages beside Python's, and
    # Spark's classes beside the C decoders.
    with ThreadPoolExecutor() as beside:
        system = beside.submit(find_or_install_system, tests=tests)
        make_venv()
        objects = beside.submit(find_or_build_object_store) if tests else None
        mysql = beside.submit(find_or_unpack_mysql) if tests else None
        if anew:
            install_packages()
        proof |= system.result()
        own = beside.submit(install_headrace) if anew else None
        proof["jars"] = jars = resolve_jars()
        proof["archive"] = make_class_archive(str(proof["java_file"]), jars, old)
        if own is not None:
            own.result()
        if objects is not None:
            proof["object_store"] = objects.result()
        if mysql is not None:
            proof["mysql"] = mysql.result()
    write_stamp(proof)
    say(f"ready after {time.monotonic() - started:.0f} s")


def find_or_install_system(*, tests: bool) -> dict[str, object]:
    """Where Java and, for tests, the databases are; one after the other, because apt-get works alone."""
    java = find_or_install_java()
    found: dict[str, object] = {"java": java, "java_file": file_mark(java)}
    if tests:
        found["postgres"] = find_or_install_postgres()
        found["mariadb"] = find_or_install_mariadb()
    return found


# ---------------------------------------------------------------------------------------------
# The stamp


def fingerprint() -> str:
    """Hash of everything that the set-up was made from."""
    digest = hashlib.sha256()
    for name in STAMPED:
        path = ROOT / name
        digest.update(name.encode() + b"\0")
        digest.update(path.read_bytes() if path.exists() else b"-")
    for name in STAMPED_ENVIRONMENT:
        digest.update(f"{name}={os.environ.get(name, '')}\0".encode())
    digest.update(package_fingerprint().encode())
    return digest.hexdigest()


def package_fingerprint() -> str:
    """Hash of what decides which packages are installed where."""
    import tomllib  # Not at the top: an older Python shall get as far as being told so.

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = (
        project["build-system"],
        project["project"],
        project["tool"]["hatch"],
        LOCK.read_text(),
        *((ROOT / name).read_text() for name in EXTENSION_SOURCES),
        str(ROOT),
    )
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_stamp() -> Mapping[str, object]:
    """The last stamp, or an empty mapping."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(proof: Mapping[str, object]) -> None:
    """Record what was set up and where it lies."""
    STAMP.write_text(json.dumps({"fingerprint": fingerprint(), **proof}, indent=1))


def is_ready(stamp: Mapping[str, object], *, tests: bool) -> bool:
    """Whether the stamp is of these very files and what it found is still there."""
    if stamp.get("fingerprint") != fingerprint() or not PYTHON.exists():
        return False
    if tests and not {"postgres", "mariadb", "mysql", "object_store"} <= stamp.keys():
        return False
    if stamp.get("java_file") != file_mark(str(stamp.get("java"))):
        # A package manager has put another one in its place: the archive of classes does not fit it.
        return False
    places = [
        stamp.get(name) for name in ("archive", "postgres", "mariadb", "mysql", "object_store")
    ]
    places += _strings(stamp.get("jars"))
    return all(Path(str(place)).exists() for place in places if place)


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep a second `make` in this clone waiting until the first has finished."""
    path = Path(tempfile.gettempdir()) / (
        "headrace-setup-" + hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
    )
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------------------------------------
# Python packages


def make_venv() -> None:
    """Create the virtual environment unless a working one is there."""
    if PYTHON.exists() and _works([str(PYTHON), "-m", "pip", "--version"]):
        return
    say("creating .venv")
    result = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode == 0:
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if "ensurepip" in result.stdout + result.stderr and can_apt():
        apt_install(package)
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], "create .venv")
        return
    raise SetupError(
        f"`{sys.executable} -m venv` failed. On Debian or Ubuntu install `{package}`.\n"
        + _tail(result.stdout + result.stderr)
    )


def install_packages() -> None:
    """Install exactly what requirements.lock names."""
    environment = package_environment()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as first:
        first.write(locked(FIRST))
        first.flush()
        say("installing the installer")
        run(
            [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            + ["--no-deps", "--require-hashes", "--requirement", first.name],
            "install the Python packages uv and setuptools with pip",
            environment=environment,
        )
    say("installing the packages of requirements.lock")
    run(
        # Compiled here, because not everybody's environment lets the first start keep what it compiles.
        [*uv_pip(), "sync", "--quiet", "--python", str(PYTHON), "--require-hashes"]
        + ["--no-build-isolation", "--compile-bytecode", str(LOCK)],
        "install the Python packages of requirements.lock",
        environment=environment,
    )


def install_headrace() -> None:
    """Install headrace itself in place, its decoders built where a C compiler works."""
    environment = package_environment()
    run(
        [*uv_pip(), "install", "--quiet", "--python", str(PYTHON), "--no-deps", "--offline"]
        + ["--no-build-isolation", "--editable", str(ROOT)],
        "install headrace itself",
        environment=environment,
        online=False,
    )
    run(
        [str(PYTHON), "-m", "compileall", "-q", "-j", "0", str(ROOT / "src")],
        "compile headrace's modules",
        online=False,
    )
    if not list((ROOT / "src/headrace/sources/postgres").glob("_native.*.so")):
        say("no C compiler works here: the log is decoded in Python, at a tenth of the speed")
    run(
        [*uv_pip(), "check", "--quiet", "--python", str(PYTHON)],
        "find every package that pyproject.toml asks for in requirements.lock (run `make lock`)",
        environment=environment,
        online=False,
    )


def uv_pip() -> list[str]:
    """The installer's command in the virtual environment."""
    return [str(VENV / "bin" / "uv"), "pip"]


def locked(names: Sequence[str]) -> str:
    """The blocks of requirements.lock that pin the named packages, hashes included."""
    blocks = re.split(r"\n(?=\S)", LOCK.read_text())
    chosen = [block for block in blocks if re.split(r"[=\s]", block, maxsplit=1)[0] in names]
    if len(chosen) != len(names):
        raise SetupError(f"requirements.lock does not pin {', '.join(names)}: run `make lock`.")
    return "\n".join(chosen) + "\n"


def package_environment() -> dict[str, str]:
    """The environment for pip and uv; what the user told pip about indexes holds for uv too."""
    environment = dict(os.environ)
    environment.setdefault("UV_SYSTEM_CERTS", "1")
    environment.setdefault("UV_LINK_MODE", "copy")
    environment.setdefault("UV_HTTP_TIMEOUT", "120")
    environment.pop("VIRTUAL_ENV", None)
    wanted = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
    if PYTHON.exists() and not any(name in environment for name in wanted.values()):
        result = subprocess.run(
            [str(PYTHON), "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        for option, name in wanted.items():
            found = re.search(rf"(?:global|:env:)\.{option}='([^']+)'", result.stdout)
            if found:
                environment[name] = found.group(1)
    return environment


def write_lock() -> None:
    """Resolve pyproject.toml anew and write requirements.lock: versions and hashes, no hosts."""
    environment = package_environment()
    uv = VENV / "bin" / "uv"
    if not uv.exists():
        make_venv()
        run([str(PYTHON), "-m", "pip", "install", "--quiet", "uv"], "install uv")
    say("resolving pyproject.toml into requirements.lock")
    run(
        [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
        + ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--no-header"]
        + ["--upgrade", "--all-extras"]
        + ["--output-file", str(LOCK), str(ROOT / "pyproject.toml")],
        "resolve the Python packages",
        environment=environment,
    )
    text = LOCK.read_text()
    if "://" in text:
        raise SetupError("requirements.lock names a host; it must hold versions and hashes only.")
    head = "# Every package at one version with its hashes. Written by `make lock`; do not edit.\n"
    LOCK.write_text(head + text)


# ---------------------------------------------------------------------------------------------
# Java


def find_or_install_java() -> str:
    """Path of a `java` that is new enough, installing Debian's when root."""
    found, report = find_java()
    if found:
        return found
    if can_apt() and not os.environ.get("JAVA_HOME"):
        for package in JAVA_PACKAGES:
            if apt_has(package):
                apt_install(package)
                break
        found, report = find_java()
        if found:
            return found
    raise SetupError(
        f"Java {OLDEST_JAVA} or newer is needed by Spark, and {report}.\n"
        f"  Debian, Ubuntu: install `{JAVA_PACKAGES[0]}` (or a newer one) as root.\n"
        f"  Elsewhere: install any JDK from {OLDEST_JAVA} on and set JAVA_HOME to its folder."
    )


def find_java() -> tuple[str | None, str]:
    """The `java` that Spark will start, if it is new enough; else why not.

    Spark takes JAVA_HOME before PATH, so an old JAVA_HOME is not passed over in silence.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        version = java_version(str(java))
        if version is None:
            return None, f"JAVA_HOME={home} holds no working bin/java (unset it or correct it)"
        if version < OLDEST_JAVA:
            return None, f"JAVA_HOME={home} is Java {version} (unset it or name a newer one)"
        return str(java), ""
    on_path = shutil.which("java")
    if on_path is None:
        return None, "there is no `java` on PATH"
    version = java_version(on_path)
    if version is None:
        return None, f"{on_path} does not run"
    if version < OLDEST_JAVA:
        return None, f"{on_path} is Java {version}"
    return on_path, ""


def file_mark(path: str) -> str:
    """What tells a program's file from another one that takes its place; empty when there is none."""
    try:
        real = Path(path).resolve(strict=True)
        found = real.stat()
    except OSError:
        return ""
    return f"{real} {found.st_size} {found.st_mtime_ns}"


def java_version(java: str) -> int | None:
    """Major version of a `java` program, or nothing when it does not run."""
    try:
        result = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(found.group(1)) if found and result.returncode == 0 else None


# ---------------------------------------------------------------------------------------------
# Delta's jars


def resolve_jars() -> list[str]:
    """Have headrace fetch and check the jars; returns where they lie."""
    module = [str(PYTHON), "-m", "headrace.spark.jars"]
    result = subprocess.run(
        module, cwd=ROOT, env=from_source(), stdin=subprocess.DEVNULL, check=False
    )
    if result.returncode:
        raise SetupError("the Delta jars are missing, see above.")
    return _lines_of([*module, "--list"])


def make_class_archive(
    java_file: str, jars: Sequence[str], old: Mapping[str, object]
) -> str | None:
    """Have headrace write down the classes of a Spark job, so that every later start takes half the time.

    Returns where they are written down, nothing when that failed.
    """
    module = [str(PYTHON), "-m", "headrace.spark.archive"]
    (archive,) = _lines_of([*module, "--print"])
    fits = old.get("java_file") == java_file and old.get("jars") == list(jars)
    if Path(archive).exists() and fits:
        return archive
    say("writing down Spark's classes, once: it starts in half the time from then on")
    made = subprocess.run(
        module,
        cwd=ROOT,
        env=from_source(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if made.returncode:
        say("that failed, which costs nothing but time")
        return None
    return archive


def from_source() -> dict[str, str]:
    """An environment in which headrace's modules are found before it is installed."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def _lines_of(command: Sequence[str]) -> list[str]:
    """What a program of ours prints."""
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=from_source(),
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return result.stdout.splitlines()


# ---------------------------------------------------------------------------------------------
# PostgreSQL for the tests


def find_or_install_postgres() -> str | None:
    """Folder of Debian's PostgreSQL server programs, or nothing when its tests must be skipped."""
    server = POSTGRES_BIN / "postgres"
    package = f"postgresql-{POSTGRES_MAJOR}"
    if not server.exists() and can_apt() and apt_has(package):
        with without_new_cluster():
            apt_install(package)
    if server.exists():
        return str(server)
    why = "not root" if os.geteuid() else f"no `{package}` to be had from apt-get"
    say(f"no {server} and {why}: tests against Debian's PostgreSQL will be skipped")
    return None


@contextlib.contextmanager
def without_new_cluster() -> Iterator[None]:
    """Keep the package from creating and starting a server of its own.

    Debian's postgresql-common reads this folder when a server package is configured for the first
    time; its own settings file is not touched.
    """
    folder = Path("/etc/postgresql-common/createcluster.d")
    setting = folder / "headrace.conf"
    new_folder = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    setting.write_text("create_main_cluster = off\n")
    try:
        yield
    finally:
        setting.unlink(missing_ok=True)
        if new_folder:
            with contextlib.suppress(OSError):
                folder.rmdir()


# ---------------------------------------------------------------------------------------------
# MariaDB for the tests


def find_or_install_mariadb() -> str | None:
    """Path of Debian's MariaDB server program, or nothing when its tests must be skipped."""
    for program, package in MARIADB_PACKAGES.items():
        if not program.exists() and can_apt() and apt_has(package):
            apt_install(package)
    if all(program.exists() for program in MARIADB_PACKAGES):
        return str(MARIADB)
    why = "not root" if os.geteuid() else "no package of it to be had from apt-get"
    say(f"no {MARIADB} and {why}: tests against MariaDB will be skipped")
    return None


def find_or_unpack_mysql() -> str | None:
    """Path of a MySQL server program in headrace's cache, or nothing when its tests must be skipped."""
    cache = os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace"
    folder = Path(cache).resolve() / "mysql"
    program = folder / "usr" / "sbin" / "mysqld"
    if program.exists():
        return str(program)
    say("unpacking the MySQL server of the tests")
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "unpack_mysql.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if made.returncode:
        why = made.stdout.strip() or _tail(made.stderr, 3).strip()
        say(f"no MySQL server, {why}: tests against MySQL will be skipped")
        return None
    return str(program)


# ---------------------------------------------------------------------------------------------
# An object store for the tests


def find_or_build_object_store() -> str | None:
    """Path of the object store's program in the virtual environment, or nothing when its tests must be skipped."""
    program = VENV / "bin" / "versitygw"
    mark = program.with_name(".versitygw")
    if program.exists() and mark.exists() and mark.read_text() == OBJECT_STORE:
        return str(program)
    go = shutil.which("go")
    if go is None:
        say("there is no `go`: tests against an object store will be skipped")
        return None
    say("building the object store of the tests")
    built = subprocess.run(
        [go, "install", OBJECT_STORE],
        env={**os.environ, "GOBIN": str(program.parent), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if built.returncode:
        say("that failed: tests against an object store will be skipped\n" + _tail(built.stderr, 3))
        return None
    mark.write_text(OBJECT_STORE)
    return str(program)


# ---------------------------------------------------------------------------------------------
# Debian packages


_apt_is_fresh = False
# apt-get gives up when another one is at work.
_one_apt = threading.Lock()


def can_apt() -> bool:
    """Whether this process may install Debian packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_has(package: str) -> bool:
    """Whether apt-get knows an installable version of the package."""
    apt_update()
    result = subprocess.run(
        ["apt-cache", "policy", package],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )
    return "Candidate:" in result.stdout and "Candidate: (none)" not in result.stdout


def apt_update() -> None:
    """Refresh the package lists, once per run; a failure shows when installing."""
    global _apt_is_fresh
    with _one_apt:
        if not _apt_is_fresh:
            say("refreshing Debian's package lists")
            subprocess.run(
                ["apt-get", "update", "-qq"],
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            _apt_is_fresh = True


def apt_install(package: str) -> None:
    """Install one Debian package without asking anything."""
    apt_update()
    with _one_apt:
        say(f"installing Debian's {package}")
        run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package],
            f"install the Debian package {package}",
            environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )


# ---------------------------------------------------------------------------------------------
# Running and telling


def say(text: str) -> None:
    """One line of progress."""
    print(f"setup: {text}", flush=True)


def run(
    command: Sequence[str],
    purpose: str,
    *,
    environment: Mapping[str, str] | None = None,
    online: bool = True,
) -> None:
    """Run a command to its end; its output appears only when it fails."""
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=None if environment is None else dict(environment),
    )
    if result.returncode:
        raise SetupError(
            f"could not {purpose}: {Path(command[0]).name} ended with {result.returncode}. "
            + ("This needs a network and its package registry.\n" if online else "\n")
            + _tail(result.stdout + result.stderr)
        )


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines()[-lines:])


def _works(command: Sequence[str]) -> bool:
    result = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
