"""The site of `make docs`: its pages, the API's reference, and that its plan names every page."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.docs.test_links import anchors
from tools.build_docs import PAGES, ROOT, api_page, within, write_pages


def planned() -> set[str]:
    plan = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return {page for section in plan["nav"] for pages in section.values() for page in pages}


def test_every_page_stands_in_the_plan_and_on_the_front_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in planned() if "/" not in page} == pages | {"api.md"}
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.md)\)", front)) == pages - {"index.md"}


def test_links_that_leave_the_documents_are_no_links_of_the_site(tmp_path: Path) -> None:
    assert within("see [a](../README.md#x) and [b](modes.md)", 0) == "see a and [b](modes.md)"
    assert within("[a](../modes.md) [b](../../README.md)", 1) == "[a](../modes.md) b"
    write_pages(tmp_path)
    pages = list(tmp_path.rglob("*.md"))
    assert len(pages) > 60
    for page in pages:
        for link in re.findall(r"\]\(([^)\s:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link.partition("#")[0]).exists() or link[0] == "#", (page, link)


def test_the_reference_has_every_page_of_the_api_with_what_is_asked_and_answered(
    tmp_path: Path,
) -> None:
    page = api_page()
    assert len(re.findall(r"^## [A-Z]+ `/", page, re.MULTILINE)) > 30
    (tmp_path / "api.md").write_text(page)
    assert "get-v1contextsnamespacereplicators" in anchors(tmp_path / "api.md")
    deployed = page.partition("## PUT `/v1/contexts/{namespace}/replicators/{name}`")[2].partition("\n## ")[0]
    for field in ("config", "draft", "start", "generation", "state"):
        assert f"| `{field}` |" in deployed, field
    logs = page.partition("/logs`\n")[2].partition("\n## ")[0]
    assert "| `table` | string | Only what speaks of it: schema.name. |" in logs


def test_pages_are_made_below_the_folder_of_builds() -> None:
    assert PAGES.is_relative_to(ROOT / "build")
    assert "build/" in (ROOT / ".gitignore").read_text().splitlines()
