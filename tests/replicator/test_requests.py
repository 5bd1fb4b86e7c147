"""The API of dump requests: what it asks for, refuses and tells."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ConfigError, StateError
from headrace.model.schema import TableId
from headrace.observe.status import ProcessState, StatusFile
from headrace.registry.file import FileRegistry
from headrace.replicator import lock
from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.requests import ALL, Requests
from headrace.state.pace import OwnPace, Pace
from headrace.state.records import OPEN, DumpProgress, RequestState, Scope
from headrace.state.store import StateStore
from headrace.testing.notation import table_of
from headrace.testing.standing import capturing
from tests.requirements import req

S = RequestState
T = table_of(2)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    return load(path)


@pytest.fixture
def requests(config: Config) -> Iterator[Requests]:
    with Requests(config) as opened:
        yield opened


@pytest.fixture
def state(config: Config) -> Iterator[StateStore]:
    opened = StateStore(StatePaths.of(config).database)
    yield opened
    opened.close()


@req("N02", "P56")
def test_each_scope_is_asked_for(requests: Requests) -> None:
    table = str(T.table)
    for asked in (
        requests.start(ALL),
        requests.start(table, priority=7),
        requests.start(table, where="c1 like 'a%'"),
        requests.start(table, keys=["1", "2"], delete_missing=True),
    ):
        assert requests.show(asked[:6]).request.request_id == asked
    shown = [(s.request.scope, s.request.table) for s in requests.all()]
    assert shown == [
        (Scope.ALL_TABLES, None),
        (Scope.TABLE, T.table),
        (Scope.PREDICATE, T.table),
        (Scope.PRIMARY_KEYS, T.table),
    ]
    keyed = requests.all()[-1].request
    assert (keyed.keys, keyed.delete_missing) == ((("1",), ("2",)), True)
    assert requests.all()[1].request.priority == 7


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"table": ALL, "keys": ["1"]}, "all were asked for"),
        ({"table": ALL, "where": "true"}, "all were asked for"),
        ({"table": "public.t", "keys": ["1"], "where": "true"}, "either keys or a condition"),
        ({"table": "public.t", "delete_missing": True}, "named by their keys"),
        ({"table": "public.t", "priority": 101}, "out of bounds"),
        ({"table": "public.t", "keys": [""]}, "key number 1"),
        ({"table": "t"}, "no name of a table"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_queued(
    requests: Requests, arguments: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        requests.start(**arguments)  # type: ignore[arg-type]
    assert caught.value.next_step
    assert requests.all() == []


def test_tables_and_keys_are_checked_once_they_are_known(
    config: Config, requests: Requests, state: StateStore
) -> None:
    schema_id = FileRegistry(StatePaths.of(config).registry).put(T)
    state.write(
        [
            lambda w: w.set("tables", json.dumps([str(T.table)])),
            lambda w: w.set(f"schema {T.table}", str(schema_id)),
        ]
    )
    with pytest.raises(ConfigError, match=r"public\.other is not a table of replicator shop"):
        requests.start("public.other")
    with pytest.raises(ConfigError, match=r"the key is \(k\)"):
        requests.start(str(T.table), keys=["1,2"])
    asked = requests.start(str(T.table), keys=["{k=5}"])
    assert requests.show(asked).request.keys == (("5",),)


@req("N08", "P08")
def test_moves_are_durable_and_may_be_asked_for_twice(config: Config, requests: Requests) -> None:
    asked = requests.start(str(T.table))
    for _ in range(2):
        assert requests.pause(asked).state is S.PAUSED
    with Requests(config) as other:
        assert other.show(asked).request.state is S.PAUSED
    for _ in range(2):
        assert requests.resume(asked).state is S.QUEUED
    assert requests.steer(asked, priority=-5).priority == -5
    for _ in range(2):
        assert requests.cancel(asked).state is S.CANCELLED
    for refused in (requests.pause, requests.resume, lambda r: requests.steer(r, priority=1)):
        with pytest.raises(StateError, match="CANCELLED: it has ended"):
            refused(asked)
    assert requests.all(ended=False) == []
    assert len(requests.all()) == 1


@req("H19")
def test_a_request_keeps_settings_of_its_own(config: Config, requests: Requests) -> None:
    asked = requests.start(str(T.table))
    requests.steer(asked, chunk_rows=500, delay_s=0.5)
    assert requests.steer(asked, rows_per_s=7.0, priority=3).priority == 3
    with Requests(config) as other:
        kept = other.steer(asked, delay_s=None)
    assert (kept.pace, kept.priority) == (OwnPace(500, None, 7.0), 3)
    assert kept.updated_s >= kept.created_s > 0
    with pytest.raises(ConfigError, match="rows_per_s must lie between"):
        requests.steer(asked, chunk_rows=1, rows_per_s=-1)
    assert requests.show(asked).request.pace == kept.pace
    assert requests.pace() == Pace(), "the others go on as before"


def test_resuming_what_runs_is_no_mistake(requests: Requests, state: StateStore) -> None:
    asked = requests.start(str(T.table))
    state.move(asked, S.ACTIVE, since=OPEN)
    assert requests.resume(asked).state is S.ACTIVE


@pytest.mark.parametrize("name", ["", "zz"])
def test_a_name_that_is_not_one_is_refused(requests: Requests, name: str) -> None:
    requests.start(ALL)
    requests.start(ALL)
    with pytest.raises(ConfigError, match="requests of shop begin with"):
        requests.pause(name)


@req("P55")
def test_progress_adds_up_over_tables(
    requests: Requests, state: StateStore, config: Config
) -> None:
    asked = requests.start(ALL)
    one, two, three = (TableId("public", name) for name in ("one", "two", "three"))
    state.move(asked, S.ACTIVE, since=OPEN)
    state.write(
        [
            lambda w: w.put_progress(
                DumpProgress(asked, one, "done", rows_read=120, rows_estimated=100), 0
            ),
            lambda w: w.put_progress(
                DumpProgress(
                    asked, two, "copying", rows_read=30, rows_estimated=100, rows_per_s=7.0
                ),
                1,
            ),
            lambda w: w.put_progress(DumpProgress(asked, three), 2),
        ]
    )
    with capturing(config):
        shown = requests.show(asked)
    assert (shown.rows_read, shown.rows_estimated, shown.rows_per_s) == (150, 220, 7.0)
    assert shown.seconds_left == pytest.approx(10.0)
    plain = json.loads(json.dumps(shown.to_json()))
    assert [entry["table"] for entry in plain["tables"]] == [
        "public.one",
        "public.two",
        "public.three",
    ]
    assert plain["tables"][1]["seconds_left"] == pytest.approx(10.0)
    # Nobody reads when capture is gone.
    assert rates(requests, asked) == (0, None, [0, 0, 0])
    with capturing(config):
        # Nor while it rests.
        requests.pause(asked, within_s=0)
        assert rates(requests, asked) == (0, None, [0, 0, 0])


def rates(requests: Requests, asked: str) -> tuple[float, float | None, list[float]]:
    (listed,) = requests.all()
    shown = requests.show(asked)
    assert listed == shown
    return shown.rows_per_s, shown.seconds_left, [p.rows_per_s for p in shown.progress]


@req("N08")
def test_cancelled_first_copies_are_told(requests: Requests) -> None:
    asked = requests.start(str(T.table))
    assert requests.incomplete() == []
    requests.cancel(asked)
    assert requests.incomplete() == [T.table]


@pytest.mark.parametrize("other", [str(T.table), ALL])
@pytest.mark.parametrize("first", [True, False])
def test_a_table_that_another_request_will_copy_is_not_called_incomplete(
    requests: Requests, other: str, first: bool
) -> None:
    kept = requests.start(other) if first else None
    needless = requests.start(str(T.table))
    kept = kept or requests.start(other)
    requests.cancel(needless)
    assert requests.incomplete() == []
    requests.cancel(kept)
    assert requests.incomplete() == [T.table]


@pytest.mark.parametrize(
    ("state_now", "why"), [(S.FAILED, "the reason"), (S.CANCELLED, "was cancelled")]
)
def test_waiting_ends_with_what_became_of_it(
    requests: Requests, state: StateStore, state_now: RequestState, why: str
) -> None:
    asked = requests.start(ALL)
    state.write([lambda w: w.request_state(asked, state_now, since=OPEN, reason="the reason")])
    with pytest.raises(StateError, match=why):
        requests.wait(asked)


def test_what_keeps_requests_from_being_carried_out_is_told(
    config: Config, requests: Requests, state: StateStore
) -> None:
    assert "nobody runs the replicator" in requests.held_up()
    asked = requests.start(ALL)
    state.move(asked, S.ACTIVE, since=OPEN)
    begun = time.monotonic()
    requests.pause(asked)
    assert time.monotonic() - begun < 5.0, "nobody who would hear it is waited for"
    paths = StatePaths.of(config)
    with lock.held(paths.lock("run"), "headrace run"):
        assert requests.held_up() == ""
        requests.set_pace(log_paused=True)
        assert "headrace log resume FILE" in requests.held_up()
        requests.set_pace(log_paused=False)
        failed = StatusFile(paths.status("capture"), "capture")
        failed.write(ProcessState.FAILED, force=True)
        failed.close()
        assert "capture is not running: it failed" in requests.held_up()


def test_waiting_has_an_end(requests: Requests) -> None:
    with pytest.raises(StateError, match="not finished after 0 s"):
        requests.wait(requests.start(ALL), timeout_s=0.0)


def test_a_pace_out_of_bounds_is_a_named_error(requests: Requests) -> None:
    with pytest.raises(ConfigError, match="load must lie between"):
        requests.set_pace(load=2.0)
    assert requests.set_pace(load=0.5).load == requests.pace().load == 0.5
