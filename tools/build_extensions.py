"""Builds the C extensions when headrace is installed; without a compiler it is installed without them.

``python tools/build_extensions.py`` does it in place.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTENSIONS = {
    "headrace.sources.mysql._native": "src/headrace/sources/mysql/_native.pyx",
    "headrace.sources.postgres._native": "src/headrace/sources/postgres/_native.pyx",
}
FLAGS = ["-O3", "-fno-strict-aliasing", "-Wno-unreachable-code"]

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a program
    BuildHookInterface = object  # type: ignore[assignment,misc]


class ExtensionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in place; a wheel then belongs to this platform."""
        built = build()
        if built and version != "editable":
            build_data["infer_tag"] = True
            build_data["pure_python"] = False
        build_data["artifacts"] += [str(path.relative_to(ROOT)) for path in built]


def build() -> list[Path]:
    """Compile every extension next to its source; return what there is afterwards."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as error:
        print(f"headrace: no C extensions, {error.name} is missing", file=sys.stderr)
        return []
    flags = FLAGS + os.environ.get("HEADRACE_CFLAGS", "").split()
    links = os.environ.get("HEADRACE_LDFLAGS", "").split()
    extensions = [
        Extension(name, [path], extra_compile_args=flags, extra_link_args=links)
        for name, path in EXTENSIONS.items()
    ]
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-build-") as folder:
            modules = cythonize(  # type: ignore[no-untyped-call]
                extensions, build_dir=folder, quiet=True
            )
            command = build_ext(Distribution({"ext_modules": modules, "package_dir": {"": "src"}}))
            command.inplace = True
            command.build_temp = folder
            command.ensure_finalized()
            command.run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"headrace: no C extensions, the compiler said: {error}", file=sys.stderr)
        return []
    finally:
        os.chdir(before)
    return [
        path
        for source in EXTENSIONS.values()
        for path in (ROOT / source).parent.glob(Path(source).stem + ".*.so")
    ]


if __name__ == "__main__":
    sys.exit(0 if build() else 1)
