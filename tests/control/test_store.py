"""The contract of a control plane's database, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from headrace.errors import CommandRefused, ConfigError, LeaseLost, NotFound, StateError, StateNewer
from headrace.replicator.control import leases
from headrace.replicator.control.database import Database
from headrace.replicator.control.lifecycle import Command, Desired, State
from headrace.replicator.control.migrations import MIGRATIONS
from headrace.replicator.control.plane import ControlPlane, PlaneSettings
from headrace.replicator.control.records import Lease, Who
from headrace.replicator.control.store import ControlStore
from tests.requirements import req

CONFIG = {"source": {"url": "postgresql://u:${env:PW}@h/db"}, "n": [1, {"a": None}]}


# -- migrations -----------------------------------------------------------------------------------


@req("P60", "P66", "C-7")
def test_missing_steps_are_carried_out_once_and_in_order(control_url: str) -> None:
    done: list[int] = []

    def second(connection: Connection) -> None:
        done.append(2)
        connection.execute(text("CREATE TABLE second (a integer)"))

    def third(connection: Connection) -> None:
        done.append(3)
        connection.execute(text("INSERT INTO second VALUES (1)"))

    Database(control_url).close()
    steps = [*MIGRATIONS, second, third]
    for _ in range(2):
        Database(control_url, steps).close()
    assert done == [2, 3]


def test_a_step_that_fails_leaves_nothing_behind(control_url: str) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (a integer)"))
        connection.execute(text("INSERT INTO missing VALUES (1)"))

    with pytest.raises(StateError):
        Database(control_url, [*MIGRATIONS, broken])
    opened = Database(control_url)
    with opened.begin() as connection:
        connection.execute(text("CREATE TABLE half (a integer)"))
    opened.close()


def test_a_database_of_a_newer_headrace_is_refused(control_url: str) -> None:
    Database(control_url, [*MIGRATIONS, lambda _: None]).close()
    with pytest.raises(StateNewer, match="version 2, and this headrace knows 1"):
        Database(control_url)


def test_processes_that_start_at_once_make_the_tables_once(control_url: str) -> None:
    code = (
        "import sys\n"
        "from headrace.replicator.control.database import Database\n"
        "from headrace.replicator.control.store import ControlStore\n"
        "print(ControlStore(Database(sys.argv[1])).namespaces())\n"
    )
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", code, control_url], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [one.communicate()[0] for one in begun] == ["['default']\n"] * 3


@pytest.mark.parametrize("url", ["nonsense", "mysql://u@h/db", "sqlite://"])
def test_a_url_that_is_no_database_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="expected a PostgreSQL URL") as caught:
        Database(url)
    assert url not in str(caught.value)


def test_a_control_planes_database_lies_in_its_folder_whatever_that_is_called(
    tmp_path: Path,
) -> None:
    plane = ControlPlane(PlaneSettings(tmp_path / "what?"))
    plane.database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["what?"]
    assert (tmp_path / "what?" / "control.db").exists()
    # It holds the configurations and the rows of all replicators.
    assert stat.S_IMODE((tmp_path / "what?").stat().st_mode) == 0o700


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StateError, match=r"postgresql database shop cannot be used") as caught:
        Database("postgresql://user:swordfish@127.0.0.1:1/shop")
    assert "swordfish" not in str(caught.value) + repr(caught.value)


# -- drafts and namespaces ------------------------------------------------------------------------


@req("C90", "C91", "C93")
def test_a_draft_is_kept_as_it_was_put(store: ControlStore, lease: Lease) -> None:
    with store.writing(lease) as writer:
        assert writer.put_draft("default", "d1", "Shop", CONFIG)
    first = store.draft("default", "d1")
    with store.writing(lease) as writer:
        assert not writer.put_draft("default", "d1", "Shop 2", {})
    second = store.draft("default", "d1")

    assert (first.label, first.config) == ("Shop", CONFIG)
    assert (second.label, second.config) == ("Shop 2", {})
    assert second.created_ms == first.created_ms <= second.updated_ms


@req("C90")
def test_drafts_are_listed_per_namespace(store: ControlStore, lease: Lease) -> None:
    with store.writing(lease) as writer:
        assert writer.put_namespace("sales")
        assert not writer.put_namespace("sales")
        for namespace, name in (("default", "b"), ("default", "a"), ("sales", "c")):
            writer.put_draft(namespace, name, "", {})
    assert [draft.name for draft in store.drafts("default")] == ["a", "b"]
    assert [draft.name for draft in store.drafts("sales")] == ["c"]
    assert store.namespaces() == ["default", "sales"]


@req("C92")
def test_what_is_not_there_is_not_found(store: ControlStore, lease: Lease) -> None:
    with store.writing(lease) as writer:
        writer.put_draft("default", "d1", "", {})
    with store.writing(lease) as writer:
        writer.delete_draft("default", "d1")
    with pytest.raises(NotFound, match="no draft d1"):
        store.draft("default", "d1")
    with pytest.raises(NotFound, match="no draft d1"), store.writing(lease) as writer:
        writer.delete_draft("default", "d1")
    with pytest.raises(NotFound, match="no namespace sales"):
        store.drafts("sales")
    with pytest.raises(NotFound, match="no namespace sales"), store.writing(lease) as writer:
        writer.put_draft("sales", "d1", "", {})
    with pytest.raises(NotFound, match="no replicator shop"):
        store.replicator("default", "shop")


@req("C99")
def test_drafts_of_a_deleted_namespace_do_not_come_back_with_its_name(
    store: ControlStore, lease: Lease
) -> None:
    with store.writing(lease) as writer:
        writer.put_namespace("sales")
        writer.put_draft("sales", "old", "", {})
    with store.writing(lease) as writer:
        writer.delete_namespace("sales")
        writer.put_namespace("sales")
    assert store.drafts("sales") == []


def test_a_namespace_with_replicators_stays_and_so_does_the_default_one(
    store: ControlStore, lease: Lease
) -> None:
    with store.writing(lease) as writer:
        writer.put_namespace("sales")
        writer.deploy("sales", "shop", {}, "/")
    with pytest.raises(CommandRefused, match="1 replicator\\."), store.writing(lease) as writer:
        writer.delete_namespace("sales")
    with pytest.raises(CommandRefused, match="default stays"), store.writing(lease) as writer:
        writer.delete_namespace("default")
    assert store.namespaces() == ["default", "sales"]


# -- replicators ----------------------------------------------------------------------------------


@req("C17")
def test_a_replicator_that_is_deployed_again_after_its_deletion_is_another(
    store: ControlStore, lease: Lease
) -> None:
    with store.writing(lease) as writer:
        first, new = writer.deploy("default", "shop", CONFIG, "/a")
        again, newly = writer.deploy("default", "shop", {}, "/b")
    assert (new, newly) == (True, False)
    assert (first.generation, first.revision, first.config, first.base) == (1, 1, CONFIG, "/a")
    assert (again.generation, again.revision, again.config, again.base) == (1, 2, {}, "/b")
    assert again.created_ms == first.created_ms
    with store.writing(lease) as writer:
        assert writer.forget(again)
    with store.writing(lease) as writer:
        reborn, _ = writer.deploy("default", "shop", {}, "/")
    assert (reborn.generation, reborn.revision) == (2, 1)
    assert reborn.number != first.number


@req("C80")
def test_generations_go_on_in_a_namespace_that_is_made_again(
    store: ControlStore, lease: Lease
) -> None:
    generations: list[int] = []
    for _ in range(3):
        with store.writing(lease) as writer:
            writer.put_namespace("sales")
            held, _ = writer.deploy("sales", "shop", {}, "/")
            other, _ = writer.deploy("sales", "other", {}, "/") if generations else (None, None)
        generations.append(held.generation)
        with store.writing(lease) as writer:
            for row in filter(None, (held, other)):
                assert writer.forget(row)
            writer.delete_namespace("sales")
        with store.writing(lease) as writer:
            # A life of the namespace without the replicator forgets nothing.
            writer.put_namespace("sales")
            writer.delete_namespace("sales")
    assert generations == [1, 2, 3]
    with store.writing(lease) as writer:
        mine, _ = writer.deploy("default", "shop", {}, "/")
    assert mine.generation == 1


def test_one_name_in_two_namespaces_is_two_replicators(store: ControlStore, lease: Lease) -> None:
    with store.writing(lease) as writer:
        writer.put_namespace("sales")
        one, _ = writer.deploy("default", "shop", {}, "/")
        other, _ = writer.deploy("sales", "shop", {}, "/")
    assert one.full_name == "shop"
    assert other.full_name == "sales--shop"
    assert [row.namespace for row in store.replicators()] == ["default", "sales"]
    assert [row.number for row in store.replicators("sales")] == [other.number]


def test_a_note_about_what_has_changed_meanwhile_changes_nothing(
    store: ControlStore, lease: Lease
) -> None:
    with store.writing(lease) as writer:
        seen, _ = writer.deploy("default", "shop", {}, "/")
    with store.writing(lease) as writer:
        started = writer.command("default", "shop", Command.START)
    with store.writing(lease) as writer:
        assert not writer.moved(seen, State.FAILED, "too late")
        assert not writer.unchanged(seen)
        assert not writer.forget(seen)
    now = store.replicator("default", "shop")
    assert now == started
    assert (now.state, now.desired, now.reason) == (State.STARTING, Desired.RUNNING, "")


def test_a_reason_of_any_letters_is_kept(store: ControlStore, lease: Lease) -> None:
    """The end of a log that a power cut took holds zeros, and is what a process said last."""
    with store.writing(lease) as writer:
        row, _ = writer.deploy("default", "shop", CONFIG, "/")
        assert writer.moved(row, State.FAILED, "It said last: \0\0the end")
    assert store.replicator("default", "shop").reason == "It said last: the end"


def test_a_command_that_changes_nothing_writes_nothing(store: ControlStore, lease: Lease) -> None:
    with store.writing(lease) as writer:
        writer.deploy("default", "shop", {}, "/")
        first = writer.command("default", "shop", Command.START)
        assert writer.command("default", "shop", Command.START) == first


@req("P60")
def test_a_block_that_fails_leaves_nothing_behind(store: ControlStore, lease: Lease) -> None:
    def half() -> None:
        with store.writing(lease) as writer:
            writer.deploy("default", "shop", {}, "/")
            writer.put_draft("default", "d", "", {})
            writer.delete_draft("default", "other")

    with pytest.raises(NotFound):
        half()
    assert store.replicators() == []
    assert store.drafts("default") == []


def test_the_audit_log_is_read_from_its_end(store: ControlStore, lease: Lease) -> None:
    for name in ("a", "b", "c"):
        with store.writing(lease) as writer:
            writer.note(Who("ada", "deploy", name), "done")
    newest = store.audit(2)
    assert [(line.who, line.what, line.object, line.outcome) for line in newest] == [
        ("ada", "deploy", "c", "done"),
        ("ada", "deploy", "b", "done"),
    ]
    assert [line.object for line in store.audit(9, newest[-1].number)] == ["a"]


def test_refusals_push_nothing_that_was_done_out_of_the_audit_log(
    store: ControlStore, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.replicator.control.store.AUDIT_LINES", 3)
    monkeypatch.setattr("headrace.replicator.control.store._TRIM_EVERY", 10)
    with store.writing(lease) as writer:
        for number in range(1, 31):
            outcome = "done" if number % 6 == 0 else "NotAllowed"
            writer.note(Who("ada", "deploy", str(number)), outcome)
    kept = [int(line.object) for line in reversed(store.audit(100))]
    # Of each kind the newest three.
    assert kept == [18, 24, 27, 28, 29, 30]


# -- the lease ------------------------------------------------------------------------------------


def test_one_of_two_gets_the_lease_and_the_other_one_when_it_has_ended(store: ControlStore) -> None:
    mine = leases.take(store.database, "host-a 1 1", 60)
    assert mine is not None
    assert leases.take(store.database, "host-b 1 1", 60) is None
    assert leases.renew(store.database, mine, 60)
    leases.release(store.database, mine)
    theirs = leases.take(store.database, "host-b 1 1", 60)
    assert theirs is not None
    assert theirs.generation == mine.generation + 1
    assert not leases.renew(store.database, mine, 60)


def test_a_lease_that_was_not_renewed_ends_by_itself(store: ControlStore) -> None:
    assert leases.take(store.database, "host-a 1 1", -1) is not None
    assert leases.take(store.database, "host-b 1 1", 60) is not None


def test_a_holder_that_is_gone_from_this_machine_is_not_waited_for(store: ControlStore) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    here, _, birth = leases.holder_name().rpartition(f" {os.getpid()} ")
    gone.wait()
    assert leases.take(store.database, f"{here} {gone.pid} {birth}", 3600) is not None
    assert leases.take(store.database, leases.holder_name(), 3600) is not None
    # This process lives, and another machine's cannot be judged from here.
    assert leases.take(store.database, "other", 60) is None


@req("N18", "T16", "P61")
def test_a_write_under_a_former_lease_is_refused(store: ControlStore, lease: Lease) -> None:
    leases.release(store.database, lease)
    newer = leases.take(store.database, "other", 60)
    assert newer is not None
    with pytest.raises(LeaseLost, match="generation 2, this one is 1"), store.writing(lease) as w:
        w.deploy("default", "shop", {}, "/")
    assert store.replicators() == []
    with store.writing(newer) as writer:
        writer.deploy("default", "shop", {}, "/")


@req("P61")
def test_the_lease_is_not_taken_in_the_middle_of_a_write(store: ControlStore, lease: Lease) -> None:
    """The check and the write are one: nobody comes between them."""
    leases.release(store.database, lease)
    taken: list[Lease | None] = []
    inside, done = threading.Event(), threading.Event()

    def take() -> None:
        inside.wait(10)
        taken.append(leases.take(store.database, "other", 60))
        done.set()

    thread = threading.Thread(target=take)
    thread.start()
    with store.writing(lease) as writer:
        inside.set()
        assert not done.wait(0.3)
        writer.deploy("default", "shop", {}, "/")
    thread.join()
    assert taken[0] is not None
    assert [row.name for row in store.replicators()] == ["shop"]
