"""The export's files, byte for byte, against files that were written by hand from the design's text."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ConfigError, SlotLost, StateError
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.replicator.config import Config
from headrace.replicator.export import Offset, export, state_of, table_state
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Observer
from tests.replicator.test_picture import ITEMS, ORDERS, block, config, fill, manifest
from tests.requirements import req

__all__ = ["config"]

GOLDEN = Path(__file__).parent / "golden"
COMMIT_US = 1_700_000_000_123_456
# The design's own example of a source: a file of MySQL's binary log and a place in it.
MYSQL = Offset(
    0x0102030405060708, {"file": b"mysql-bin.000003", "pos": bytes.fromhex("00000000000004d2")}
)
MYSQL_BYTES = (
    "0102030405060708"  # sequence
    "00000002"  # entries
    "0000000466696c65"  # file
    "000000106d7973716c2d62696e2e303030303033"
    "00000003706f73"  # pos
    "0000000800000000000004d2"
)  # fmt: skip


def standing(config: Config) -> None:
    """Let a replicator have a frontier, a table that is copied, and one that fails."""
    tables = manifest(0x1122334455, orders="failing", items="copying", notes="live")
    tables = replace(tables, commit_us=COMMIT_US, changes=0x010203)
    fill(config, tables, block(10, 1_000_000, {ORDERS: 1, ITEMS: 1}))
    error = {"name": "MissingBase", "message": "a change left out note."}
    detail = {"tables": {"public.orders": {"error": error}}}
    StatusFile(StatePaths.of(config).status("apply"), "apply").write(ProcessState.RUNNING, detail)


@req("C102")
def test_an_offset_has_the_designs_bytes() -> None:
    assert MYSQL.to_bytes() == bytes.fromhex(MYSQL_BYTES)
    assert Offset.from_bytes(bytes.fromhex(MYSQL_BYTES)) == MYSQL
    assert Offset(-1, {}).to_bytes() == b"\xff" * 8 + b"\0" * 4


@req("C102", "C33")
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(max_size=9), st.binary(max_size=20), max_size=5),
)
def test_an_offset_survives_storing(sequence: int, entries: dict[str, bytes]) -> None:
    offset = Offset(sequence, entries)
    assert Offset.from_bytes(offset.to_bytes()) == offset


@req("C102")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex(MYSQL_BYTES)[:-1],
        bytes.fromhex(MYSQL_BYTES) + b"\0",
        b"\0" * 8 + b"\xff" * 4,
        b"\0" * 11 + b"\1" + b"\xff" * 4,
        b"\0" * 11 + b"\1" + b"\0\0\0\1\xff" + b"\0" * 4,
    ],
    ids=["empty", "short", "long", "negative count", "negative length", "no text"],
)
def test_bytes_that_are_no_offset_are_named(data: bytes) -> None:
    with pytest.raises(StateError, match="are no offset file"):
        Offset.from_bytes(data)


@req("C102", "C103")
def test_the_files_are_those_that_the_design_describes(config: Config, tmp_path: Path) -> None:
    standing(config)
    done = export(config, tmp_path / "out", "default", 3)
    folder = tmp_path / "out" / "default" / "shop" / "3"
    assert done.offset == folder / "offset.1700000000123"
    assert done.state == folder / "state.json"
    assert sorted(folder.iterdir()) == [done.offset, done.state]
    assert done.offset.read_bytes() == (GOLDEN / "offset.1700000000123").read_bytes()
    assert done.state.read_bytes() == (GOLDEN / "state.json").read_bytes()


@req("C103")
def test_a_table_that_is_gone_at_the_source_does_not_fail(config: Config) -> None:
    fill(config, manifest(10, orders="live", items="left"))
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    assert [table["table"] for table in state_of(picture)["tables"]] == ["orders"]
    states = {table.name: table_state(table.phase) for table in picture.tables}
    assert states == {"public.orders": "REPLICATING", "public.items": "LEFT"}


def test_offsets_of_earlier_commits_and_of_others_stay(config: Config, tmp_path: Path) -> None:
    standing(config)
    first = export(config, tmp_path / "out", "default", 0)
    later = replace(
        manifest(0x1122334466, orders="live"), commit_us=COMMIT_US + 5_000, changes=0x010207
    )
    fill(config, later)
    second = export(config, tmp_path / "out", "default", 0)
    other = export(config, tmp_path / "out", "other", 1)
    offsets = [one.offset for one in (first, second, other)]
    assert len({*offsets}) == 3
    assert [offset and Offset.from_bytes(offset.read_bytes()).sequence for offset in offsets] == [
        0x010203,
        0x010207,
        0x010207,
    ]


def test_a_replicator_that_has_not_begun_has_a_state_and_no_offset(
    config: Config, tmp_path: Path
) -> None:
    done = export(config, tmp_path, "default", 0)
    assert done.offset is None
    assert json.loads(done.state.read_text()) == {
        "sourceState": "OK",
        "sourceError": None,
        "tables": [],
    }


def test_a_source_that_stands_in_the_way_is_told(config: Config, tmp_path: Path) -> None:
    error = describe_error(SlotLost("The slot is gone.", next_step="headrace resync FILE"))
    status = StatusFile(StatePaths.of(config).status("capture"), "capture")
    status.write(ProcessState.FAILED, error=error)
    state = json.loads(export(config, tmp_path, "default", 0).state.read_text())
    assert state["sourceState"] == "FAILING"
    assert state["sourceError"] == {"message": "The slot is gone.", "stackTrace": []}


def test_a_folder_that_refuses_is_named(config: Config, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(StateError, match="cannot be written"):
        export(config, tmp_path / "out", "default", 0)


@pytest.mark.parametrize("namespace", ["", "..", "a/b"])
def test_a_namespace_that_is_no_folder_is_refused(
    config: Config, tmp_path: Path, namespace: str
) -> None:
    with pytest.raises(ConfigError, match="--namespace: expected letters"):
        export(config, tmp_path / "out", namespace, 0)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_wrote(config: Config, tmp_path: Path) -> None:
    standing(config)
    arguments = ["export", str(tmp_path / "shop.yaml"), "--to", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    folder = tmp_path / "out" / "default" / "shop" / "0"
    assert json.loads(result.stdout) == {
        "offset": str(folder / "offset.1700000000123"),
        "state": str(folder / "state.json"),
    }
    assert str(folder / "state.json") in CliRunner().invoke(app, arguments).stdout
