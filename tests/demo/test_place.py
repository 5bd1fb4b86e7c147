"""The configuration that the demo writes for each kind of server that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.demo.place import Place
from headrace.demo.servers import KINDS
from headrace.replicator import config_file
from headrace.replicator.databases import open_database
from tests.requirements import req

URLS = {
    "postgres": "postgresql://postgres@localhost/shop",
    "mysql": "mysql://headrace:for-tests@127.0.0.1:3306/",
    "mariadb": "mysql://headrace:for-tests@127.0.0.1:3306/",
}


@req("H13")
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_for_each_kind_of_server_is_understood(kind: str, tmp_path: Path) -> None:
    config = config_file.load(Place(tmp_path).write_config(KINDS[kind].source_type, URLS[kind]))
    assert config.name == "shop"
    assert open_database(config).name == "shop"
