"""Build the documents as a site: docs/ as it is, the API's reference from its own description.

MkDocs lives in an environment of its own, made from docs/requirements.lock, because nothing else needs it.

    python -m tools.build_docs            build/docs/index.html
    python -m tools.build_docs --lock     rewrite docs/requirements.lock
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from headrace.replicator.api.app import api
from headrace.replicator.control.plane import ControlPlane
from tools.setup import package_environment

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "docs"
LOCK = ROOT / "docs" / "requirements.lock"
ENVIRONMENT = BUILD / "docs-env"
UV = Path(sys.executable).with_name("uv")
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site, or the lock; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the documents as a site.")
    parser.add_argument("--lock", action="store_true", help="rewrite docs/requirements.lock")
    if parser.parse_args(arguments).lock:
        write_lock()
        return 0
    write_pages(PAGES)
    python = environment()
    subprocess.run(
        [str(python), "-m", "mkdocs", "build", "--strict", "--quiet"]
        + ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(SITE)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    print(f"docs: {SITE / 'index.html'}")
    return 0


def write_pages(folder: Path) -> None:
    """Put the pages of the site into a folder: those of docs/, and the reference of the API."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.lock"))
    for page in folder.rglob("*.md"):
        depth = len(page.relative_to(folder).parts) - 1
        page.write_text(within(page.read_text(encoding="utf-8"), depth), encoding="utf-8")
    (folder / "api.md").write_text(api_page(), encoding="utf-8")


def within(text: str, depth: int) -> str:
    """Return a page whose links out of docs/ are no links: what they lead to is in the repository, not in the site."""

    def plain(match: re.Match[str]) -> str:
        above = match[2].count("../")
        return match[1] if above > depth else match[0]

    return _LINK.sub(plain, text)


def api_page() -> str:
    """Return the reference of the API, from the document that ``headrace serve`` gives at ``/openapi.json``."""
    # What is asked for its description is never called.
    document = api(cast(ControlPlane, None)).openapi()
    lines = [
        "# API reference",
        "",
        "What [serving](serving.md) explains, page by page. `headrace serve` draws the same at `/docs`.",
        "",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} `{path}`", "", operation.get("description", ""), ""]
            lines += list(_operation(operation, document["components"]["schemas"]))
    return "\n".join(lines) + "\n"


def _operation(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
    if parameters:
        yield from _table(
            "parameter", ((p["name"], p["schema"], p.get("description", "")) for p in parameters)
        )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if body:
        yield from _fields("in the body", body["schema"], schemas)
    for status, answer in operation["responses"].items():
        shown = answer.get("content", {}).get("application/json", {}).get("schema", {})
        if status.startswith("2") and shown:
            yield from _fields(f"in the answer ({status})", shown, schemas)


def _fields(head: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    held = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    rows = [
        (name, of, of.get("description", "")) for name, of in held.get("properties", {}).items()
    ]
    if rows:
        yield from _table(head, rows)


def _table(head: str, rows: Any) -> Iterator[str]:
    yield from (f"| {head} | type | meaning |", "|---|---|---|")
    for name, schema, meaning in rows:
        yield f"| `{name}` | {_type(schema)} | {meaning} |"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one != "")
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def environment() -> Path:
    """Return the Python that has MkDocs; made when it is not there or the lock has changed."""
    python, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "lock"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        run([str(UV), "venv", "--quiet", "--python", sys.executable, str(ENVIRONMENT)])
        run(
            [str(UV), "pip", "install", "--quiet", "--require-hashes", "--python", str(python)]
            + ["-r", str(LOCK)]
        )
        shutil.copyfile(LOCK, stamp)
    return python


def write_lock() -> None:
    """Resolve MkDocs and what it stands on: versions and hashes, no hosts."""
    run(
        [
            str(UV),
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version",
            "3.11",
            "--generate-hashes",
        ]
        + [
            "--no-emit-index-url",
            "--no-annotate",
            "--no-header",
            "--upgrade",
            "--output-file",
            str(LOCK),
            "-",
        ],
        given="mkdocs>=1.6,<2\n",
    )


def run(argv: list[str], given: str = "") -> None:
    """Run a command, with what it is given at its input."""
    subprocess.run(argv, check=True, input=given, text=True, env=package_environment())


if __name__ == "__main__":
    sys.exit(main())
