"""Runs the tests of the C decoders with an address sanitiser: no read or write past a field, however broken the bytes.

The extensions are built once more in a copy of the sources; the environment stays as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/sources/mysql/test_alike.py",
    "tests/sources/mysql/test_repeated.py",
    "tests/sources/mysql/test_selected.py",
    "tests/sources/mysql/test_walk.py",
    "tests/sources/postgres/test_twins.py",
    "tests/sources/postgres/test_copy_binary.py",
)
FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
)


def main() -> int:
    """Build, run, and return pytest's exit status."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="headrace-asan-") as folder:
        copy = Path(folder)
        for name in ("src", "tests", "tools", "docs"):
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for name in ("pyproject.toml", "Makefile"):
            shutil.copy(ROOT / name, copy / name)
        environment = {
            **os.environ,
            "HEADRACE_CFLAGS": FLAGS,
            "HEADRACE_LDFLAGS": "-fsanitize=address,undefined",
        }
        build = [sys.executable, "tools/build_extensions.py"]
        subprocess.run(build, cwd=copy, env=environment, check=True)
        environment |= {
            "LD_PRELOAD": library,
            # Python keeps what it has for ever, and takes its small objects from pools that hide errors.
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": f"{copy / 'src'}:{copy}",
        }
        tests = [name for name in TESTS if (copy / name).exists()]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *sys.argv[1:], *tests], cwd=copy, env=environment
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
