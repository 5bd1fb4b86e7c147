"""The folder in which a replicator keeps its state: it holds rows, so it is its owner's alone."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.requests import Requests
from headrace.replicator.run import note_end
from headrace.replicator.tap import taught


def _config(tmp_path: Path) -> Config:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'], url: 'postgresql://u@127.0.0.1:1/db'}\n"
        "target: {type: delta, path: ./lake}\n"
        "state: {dir: ./held/state}\n"
    )
    return load(file)


def _rights(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def _ask(config: Config) -> None:
    with Requests(config):
        pass


WAYS: dict[str, Callable[[Config], object]] = {
    "by a process": lambda config: StatePaths.of(config).create(),
    "by a request": _ask,
    "by a run that ends at once": note_end,
    "by a reader of a tap that teaches": lambda config: taught(StatePaths.of(config).tap),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_state_folder_is_its_owners_alone(tmp_path: Path, way: str) -> None:
    config = _config(tmp_path)
    WAYS[way](config)
    assert _rights(config.state_dir) == 0o700
    # What lies beside it, such as a lake, is none of its business.
    assert _rights(config.state_dir.parent) == _rights(_plain(tmp_path))


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path, way: str) -> None:
    config = _config(tmp_path)
    config.state_dir.mkdir(parents=True)
    config.state_dir.chmod(0o750)
    WAYS[way](config)
    assert _rights(config.state_dir) == 0o750


def _plain(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    return folder
