"""Texts that a database cannot hold are refused as such, whatever database keeps the control plane's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.control.asking import Asking, served

NS = "/v1/contexts/default"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{NS}/drafts/d", {"config": {}, "label": "a\0b"}),
        ("PUT", f"{NS}/replicators/shop", {"draft": "a\0b"}),
        ("POST", f"{NS}/getState", {"name": "a\0b"}),
    ],
)
def test_a_text_with_nul_is_a_bad_request(
    tmp_path: Path, control_url: str, method: str, path: str, body: dict[str, Any]
) -> None:
    with served(tmp_path, control_url) as (_, url):
        answer = Asking(url)(method, path, body)
    assert (answer.status, answer.error["type"]) == (422, "BadRequest"), answer.text


def test_a_configuration_with_nul_is_kept(tmp_path: Path, control_url: str) -> None:
    config = {"source": {"x": "a\0b", "é": ["\U0001f600", "\x1b[31m"]}}
    with served(tmp_path, control_url) as (_, url):
        Asking(url).does("PUT", f"{NS}/drafts/d", {"config": config}, 201)
        assert Asking(url).one(f"{NS}/drafts/d")["config"] == config
