"""One control plane for all tests of its API, emptied behind each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.replicator.control.plane import ControlPlane
from tests.control.api.paths import NS
from tests.control.asking import ADMIN, OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.planes import end_everything, environment
from tests.waiting import until


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


@pytest.fixture(scope="package")
def both(folder: Path) -> Iterator[tuple[ControlPlane, str]]:
    hidden = frozenset({"env:CONTROL_TOKEN", "file:control", "keyring:control"})
    try:
        with served(folder, tokens=TOKENS, hidden=hidden) as found:
            yield found
    finally:
        end_everything(folder)


@pytest.fixture
def url(both: tuple[ControlPlane, str]) -> Iterator[str]:
    """Give a control plane's URL; what a test has deployed is deleted behind it."""
    plane, found = both
    yield found
    admin = Asking(found, ADMIN.secret)
    for row in plane.store.replicators():
        path = f"/v1/contexts/{row.namespace}/replicators/{row.name}"
        admin("DELETE", f"{path}?source=leave")
    until(lambda: not plane.store.replicators(), "an empty control plane")
    for draft in plane.store.drafts("default"):
        admin("DELETE", f"{NS}/drafts/{draft.name}")


@pytest.fixture
def viewer(url: str) -> Asking:
    return Asking(url, VIEWER.secret)


@pytest.fixture
def operator(url: str) -> Asking:
    return Asking(url, OPERATOR.secret)


@pytest.fixture
def admin(url: str) -> Asking:
    return Asking(url, ADMIN.secret)
