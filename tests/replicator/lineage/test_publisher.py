"""Lineage events of runs: what is told when, to a real collector that may be away, and to a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import LeaseLost, SlotLost
from headrace.model.schema import TableSchema
from headrace.observe.status import ProcessState, ProcessStatus
from headrace.registry.file import FileRegistry
from headrace.replicator import lock
from headrace.replicator.config import Config
from headrace.replicator.lineage import outbox
from headrace.replicator.lineage.outbox import Outbox
from headrace.replicator.lineage.publisher import Publisher
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture
from headrace.replicator.run import Run
from tests.outputs.receiver import receiving
from tests.replicator.lineage.openlineage import faults_of
from tests.replicator.lineage.test_columns import PEOPLE, config_of, schema_of
from tests.requirements import req
from tests.waiting import until

NOTHING = Picture((), 0, 0, 0, 0, None, 0, 0, {})


def config_in(folder: Path, url: str = "", **also: Any) -> Config:
    lineage = {"file": str(folder / "told.ndjson"), **({"url": url} if url else {}), **also}
    return config_of(lineage=lineage, state={"dir": str(folder / "state")})


def shown(config: Config, schema: TableSchema) -> Picture:
    """Return a picture in which apply says that the target has the columns of a version."""
    schema_id = FileRegistry(StatePaths.of(config).registry).put(schema)
    detail = {"tables": {str(schema.table): {"schema_id": f"{schema_id:016x}"}}}
    apply = ProcessStatus("apply", 1, ProcessState.RUNNING, 0, detail)
    return replace(NOTHING, roles={"apply": apply})


def told(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "told.ndjson").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for one in found:
        assert faults_of(one) == []
    return found


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [one["eventType"] for one in events]


def inputs(event: dict[str, Any]) -> set[str]:
    """Return the columns of the source that an event's columns come from."""
    fields = event["outputs"][0]["facets"]["columnLineage"]["fields"].values()
    return {one["field"] for field in fields for one in field["inputFields"]}


@req("C23", "C73")
def test_a_run_tells_of_its_start_each_change_of_shape_and_its_end(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    publisher = Publisher(config, NOTHING)
    later = schema_of("first", "surname")
    for picture in (
        NOTHING,
        shown(config, PEOPLE),
        shown(config, PEOPLE),
        # Apply is started again, and says nothing yet.
        NOTHING,
        shown(config, PEOPLE),
        shown(config, later),
    ):
        publisher.take(picture)
    publisher.close()
    events = told(tmp_path)
    assert kinds(events) == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert events[0]["outputs"] == []
    assert inputs(events[1]) == set(PEOPLE.names)
    assert inputs(events[2]) == inputs(events[3]) == {"id", "first", "surname"}
    assert len({one["run"]["runId"] for one in events}) == 1
    assert [one["eventTime"] for one in events] == sorted(one["eventTime"] for one in events)


@req("C73")
def test_a_run_that_does_not_get_the_folder_says_nothing(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    paths = StatePaths.of(config)
    paths.create()
    publisher = Publisher(config, NOTHING)
    with (
        lock.held(paths.lock("run"), "another run"),
        pytest.raises(LeaseLost),
        Run(tmp_path / "shop.yaml", config),
    ):
        pass
    publisher.close()
    assert kinds(told(tmp_path)) == ["START", "COMPLETE"]


@req("C73")
def test_the_error_that_ends_a_run_is_told_as_its_failure(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(SlotLost), Run(tmp_path / "shop.yaml", config):
        raise SlotLost("The slot is gone.", next_step="resync")
    begun, failed = told(tmp_path)
    assert (begun["eventType"], failed["eventType"]) == ("START", "FAIL")
    message = failed["run"]["facets"]["errorMessage"]["message"]
    assert message == "SlotLost: The slot is gone."


@req("C73")
def test_a_run_that_fails_says_why_and_one_that_was_killed_is_ended_by_the_next(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    failed = Publisher(config, NOTHING)
    failed.fail(SlotLost("The slot is gone.", next_step="resync"))
    failed.close()
    _killed = Publisher(config, shown(config, PEOPLE))
    last = Publisher(config, shown(config, PEOPLE))
    last.close()
    events = told(tmp_path)
    assert kinds(events) == ["START", "FAIL", "START", "ABORT", "START", "COMPLETE"]
    runs = [one["run"]["runId"] for one in events]
    assert runs[0] == runs[1]
    assert runs[2] == runs[3] != runs[4] == runs[5]
    message = events[1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "SlotLost: The slot is gone."


@req("C73")
def test_a_collector_gets_each_event_once_and_in_order_through_its_absence(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.answers = [503, "cut", 401]
        config = config_in(tmp_path, receiver.url, token="swordfish-of-lineage")
        assert config.lineage is not None
        folder = StatePaths.of(config).lineage
        box = Outbox(config.lineage, folder, pause_s=0.01)
        for n in range(5):
            box.put({"n": n})
        until(lambda: len(receiver.taken) == 5, "all events")
        box.close()
        assert [one["n"] for one in receiver.taken] == list(range(5))
        assert [one for one in folder.iterdir() if one.suffix == ".json"] == []
        assert {of["authorization"] for _, of, _ in receiver.calls} == {
            "Bearer swordfish-of-lineage"
        }


@req("C73")
def test_what_a_run_could_not_send_the_next_one_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as receiver:
        gone = receiver.url
    config = config_in(tmp_path, gone)
    publisher = Publisher(config, shown(config, PEOPLE))
    publisher.close()
    assert "not taken" in caplog.text
    assert "hidden-token" not in caplog.text
    with receiving() as receiver:
        config = config_in(tmp_path, receiver.url)
        again = Publisher(config, shown(config, PEOPLE))
        again.close()
        until(lambda: len(receiver.taken) == 4, "all events")
        assert kinds(receiver.taken) == ["START", "COMPLETE", "START", "COMPLETE"]
        for one in receiver.taken:
            assert faults_of(one) == []


@req("C73")
def test_a_collector_that_stays_away_costs_the_oldest_events_and_no_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "MOST_KEPT", 3)
    with receiving() as receiver:
        gone = receiver.url
    config = config_in(tmp_path, gone)
    assert config.lineage is not None
    box = Outbox(config.lineage, tmp_path / "waiting")
    for n in range(5):
        box.put({"n": n})
    box.close()
    kept = [json.loads(p.read_text())["n"] for p in sorted((tmp_path / "waiting").glob("*.json"))]
    assert kept == [2, 3, 4]
    assert "the oldest event goes unsent" in caplog.text


@req("C73")
def test_a_file_that_cannot_be_written_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_in(tmp_path, file=str(tmp_path / "in the way" / "told.ndjson"))
    (tmp_path / "in the way").write_text("")
    publisher = Publisher(config, NOTHING)
    publisher.take(shown(config, PEOPLE))
    publisher.close()
    assert "cannot be kept" in caplog.text
