"""What is deleted, and what never is: every promised version reads as before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from headrace.lake.commit import now_ms, put_commit
from headrace.lake.data_writer import write_rows
from headrace.lake.retention import files_kept_ms, log_kept_ms
from headrace.lake.tidy import tidy
from headrace.lake.vectors import vector_path, write_vectors
from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.test_commits import Source, folded_of
from tests.places import local

HOUR_MS = 3_600_000


def aged(table: LocalTable, hours: float) -> None:
    """Let time pass for a table: what its log says, and its files."""
    for path in (local(table.folder) / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= int(hours * HOUR_MS)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for path in local(table.folder).rglob("*"):
        then = path.stat().st_mtime - hours * 3_600
        os.utime(path, (then, then))


def busy(folder: Path, monkeypatch: pytest.MonkeyPatch, commits: int) -> LocalTable:
    keep_files_apart(monkeypatch)
    table, source = LocalTable(folder, table_of(3)), Source(3, 1)
    for scn in range(1, commits + 1):
        table.apply(folded_of(table.schema, source.batch(60 if scn % 5 == 1 else 3)), scn)
    return table


def data_files(folder: Path) -> int:
    return len([path for path in folder.iterdir() if path.is_file()])


@pytest.mark.parametrize("promised", [1, 7, 19])
def test_promised_versions_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised: int
) -> None:
    table = busy(tmp_path, monkeypatch, 19)
    contents = {version: table.content(version) for version in range(promised, 20)}
    aged(table, 2)
    before = data_files(tmp_path)
    assert tidy(tmp_path, promised) == before - data_files(tmp_path)
    assert (data_files(tmp_path) < before) == (promised > 1)
    for version, content in contents.items():
        assert table.content(version) == content
    if promised == 19:
        # Nothing is left but what the newest version shows.
        files = table.table.snapshot().files
        vectors = {file.vector["pathOrInlineDv"] for file in files if file.vector}
        assert data_files(tmp_path) == len(files) + len(vectors)
    assert tidy(tmp_path, promised) == 0


def test_what_a_crash_left_behind_goes_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = busy(tmp_path, monkeypatch, 12)
    contents = {version: table.content(version) for version in range(3, 13)}
    held = table.table.snapshot()
    left = write_rows(tmp_path, held.to_table(), ["k"])[0]["path"]
    (vector,) = write_vectors(tmp_path, [np.array([1, 2])])
    stray = {tmp_path / left, vector_path(tmp_path, vector)}
    other = tmp_path / "notes.txt"
    other.touch()
    aged(table, 6 * 24)
    tidy(tmp_path, 3)
    assert stray <= set(tmp_path.iterdir())
    aged(table, 2 * 24)
    tidy(tmp_path, 3)
    assert not stray & set(tmp_path.iterdir())
    assert other.exists()
    for version, content in contents.items():
        assert table.content(version) == content


def test_a_file_that_came_and_went_is_no_leftover_while_its_version_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = busy(tmp_path, monkeypatch, 39)
    aged(table, 2)
    # This one's checkpoint forgets what was removed until here.
    table.apply(folded_of(table.schema, "+R(1,a,b)"), 40)
    contents = {version: table.content(version) for version in range(25, 41)}
    aged(table, 8 * 24)
    tidy(tmp_path, 25)
    for version, content in contents.items():
        assert table.content(version) == content


def test_what_was_removed_just_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = busy(tmp_path, monkeypatch, 19)
    # However old the file is: who reads the table by its folder may have begun before the removal.
    for path in tmp_path.glob("*.*"):
        os.utime(path, (0, 0))
    before = data_files(tmp_path)
    assert tidy(tmp_path, 19) == 0
    assert data_files(tmp_path) == before
    assert table.content(2)


def test_a_table_may_ask_for_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = busy(tmp_path, monkeypatch, 10)
    held = table.table.snapshot()
    properties = {**held.properties, "delta.deletedFileRetentionDuration": "interval 3 hours"}
    change = {"metaData": {**held.metadata, "configuration": properties}}
    put_commit(tmp_path, held.version + 1, [change])
    aged(table, 2)
    assert tidy(tmp_path, 11) == 0
    aged(table, 2)
    assert tidy(tmp_path, 11) > 0


def test_the_log_is_no_longer_than_its_checkpoint_and_its_promises_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = busy(tmp_path, monkeypatch, 65)
    aged(table, 30)
    contents = {version: table.content(version) for version in range(45, 66)}
    tidy(tmp_path, 45)
    numbers = {int(path.name[:20]) for path in (tmp_path / "_delta_log").glob("0*")}
    assert numbers == set(range(40, 66))
    for version, content in contents.items():
        assert table.content(version) == content


def test_a_checkpoint_that_another_writer_never_finished_stands_for_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = busy(tmp_path, monkeypatch, 39)
    contents = {version: table.content(version) for version in range(30, 40)}
    log = local(table.folder) / "_delta_log"
    whole = log / f"{20:020d}.checkpoint.parquet"
    (log / f"{30:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_bytes(whole.read_bytes())
    aged(table, 24 * 366)
    tidy(tmp_path, 30)
    assert min(log.glob("*.json")).name == f"{20:020d}.json"
    for version, content in contents.items():
        assert table.content(version) == content


def test_a_version_that_is_gone_already_is_no_error(tmp_path: Path) -> None:
    LocalTable(tmp_path, table_of(2))
    assert tidy(tmp_path, 99) == 0


def test_checkpoints_forget_what_was_removed_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = busy(tmp_path, monkeypatch, 39)
    assert table.table.state(39).removed
    aged(table, 2)
    table.apply(folded_of(table.schema, "+R(1,a,b)"), 40)
    young = [a["deletionTimestamp"] for a in table.table.state(40).removed.values()]
    assert young
    assert min(young) > now_ms() - HOUR_MS


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("interval 1 hours", 1),
        ("interval 90 minutes", 1.5),
        ("2 days", 48),
        ("INTERVAL 1 WEEK", 168),
        ("interval 1 month", 168),
        ("soon", 168),
    ],
)
def test_durations_as_people_write_them(text: str, hours: float) -> None:
    assert files_kept_ms({"delta.deletedFileRetentionDuration": text}) == hours * HOUR_MS
    assert log_kept_ms({}) == 30 * 24 * HOUR_MS
