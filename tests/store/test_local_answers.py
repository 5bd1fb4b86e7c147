"""File servers may carry a request out and lose the answer: what there is says what happened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.store.local import LOCAL


def test_a_name_that_our_own_lost_request_took_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the files of a commit that came about would be deleted as those of one that did not."""
    path, link = tmp_path / "log" / "0.json", os.link

    def linked_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", linked_twice)
        LOCAL.put_if_absent(path, b"ours")
    with pytest.raises(FileExistsError):
        LOCAL.put_if_absent(path, b"theirs")
    assert path.read_bytes() == b"ours"
    assert LOCAL.names(path.parent) == ["0.json"]
