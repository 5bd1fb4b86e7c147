"""The supervisor, with small children of its own making."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, LeaseLost, RetriesExhausted, SlotLost
from headrace.replicator import orphans
from headrace.replicator.paths import StatePaths
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.supervisor import ChildSpec, Supervisor
from headrace.replicator.worker import EXIT_RETRY, EXIT_STOP
from headrace.state.store import StateStore
from tests.requirements import req
from tests.waiting import until

FAST = RestartPolicy(first_s=0.01, longest_s=0.05)
FOREVER = "import time\nwhile True: time.sleep(60)"


def child(code: str, name: str = "capture") -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code))


def polled(supervisor: Supervisor, condition: Callable[[], object]) -> Callable[[], bool]:
    """Let the supervisor work while a test waits."""

    def look() -> bool:
        supervisor.poll()
        return bool(condition())

    return look


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@req("C60")
def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    with Supervisor(StatePaths(tmp_path), [child(FOREVER)], policy=FAST) as supervisor:
        supervisor.poll()
        first = supervisor.pids["capture"]
        os.kill(first, signal.SIGKILL)

        until(
            polled(supervisor, lambda: supervisor.pids.get("capture") not in (None, first)),
            "a new child",
        )

        assert supervisor.restarts == {"capture": 1}


def test_restarts_wait_longer_each_time() -> None:
    policy = RestartPolicy(first_s=1, longest_s=10)

    assert [policy.delay_s(deaths) for deaths in (1, 2, 3, 4, 5, 500)] == [1, 2, 4, 8, 10, 10]


def test_a_dead_child_waits_for_its_time(tmp_path: Path) -> None:
    now = [0.0]
    policy = RestartPolicy(first_s=5)
    spec = child(f"raise SystemExit({EXIT_RETRY})")
    with Supervisor(
        StatePaths(tmp_path), [spec], policy=policy, clock=lambda: now[0]
    ) as supervisor:
        until(polled(supervisor, lambda: supervisor.waiting), "the death")
        now[0] = 4.9
        supervisor.poll()
        assert not supervisor.pids
        now[0] = 5.0
        supervisor.poll()
        assert supervisor.restarts == {"capture": 1}


@req("C60")
def test_an_error_that_time_heals_is_tried_without_end(tmp_path: Path) -> None:
    policy = RestartPolicy(first_s=0.001, longest_s=0.001, crashes=2)
    spec = child(f"raise SystemExit({EXIT_RETRY})")
    with Supervisor(StatePaths(tmp_path), [spec], policy=policy) as supervisor:
        until(polled(supervisor, lambda: supervisor.restarts["capture"] > 4), "many restarts")


def reporting(paths: StatePaths, detail: dict[str, float], code: int) -> ChildSpec:
    """Return a child that reports and ends as the source being away does."""
    report = {
        "process": "capture",
        "state": "failed",
        "updated_us": 1,
        "detail": detail,
        "error": {
            "name": "SourceUnavailable",
            "message": "the server is away.",
            "next_step": "start it.",
            "retry": "timed",
        },
    }
    return child(
        "import json, os\n"
        f"report = json.loads({json.dumps(json.dumps(report))})\n"
        f"open({str(paths.status('capture'))!r}, 'w').write(json.dumps(report | {{'pid': os.getpid()}}))\n"
        f"raise SystemExit({code})"
    )


class Simulated:
    """A supervisor whose clock stands still while a child lives; each life takes as long as was said."""

    def __init__(self, supervisor: Supervisor, now: list[float], pause_s: float = 30.0) -> None:
        self.supervisor = supervisor
        self.now = now
        self.pause_s = pause_s

    def death(self, lived_s: float) -> None:
        """Start the child, let so many seconds go by, and bury it."""
        until(polled(self.supervisor, lambda: self.supervisor.pids), "the start")
        pid = self.supervisor.pids["capture"]
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.now[0] += lived_s
        until(polled(self.supervisor, lambda: self.supervisor.waiting), "the death")
        self.now[0] += self.pause_s

    def deaths(self, lived_s: float, count: int) -> None:
        for _ in range(count):
            self.death(lived_s)


@req("C10", "C60")
@pytest.mark.parametrize("lived_s", [1.0, 90.0], ids=["refused at once", "after long waits"])
def test_a_source_that_is_away_for_longer_than_it_may_be_ends_the_run(
    tmp_path: Path, lived_s: float
) -> None:
    """An hour on a simulated clock; an attempt that only waits counts, however long it waits."""
    now, paths = [0.0], StatePaths(tmp_path)
    policy = RestartPolicy(for_s=3_600.0)
    spec = reporting(paths, {}, EXIT_RETRY)
    with Supervisor(paths, [spec], policy=policy, clock=lambda: now[0]) as supervisor:
        life = Simulated(supervisor, now)
        with pytest.raises(RetriesExhausted) as caught:
            life.deaths(lived_s, 200)
    assert 3_600 <= now[0] < 3_600 + 30 + lived_s
    assert "retry.for_s is 3600); last: the server is away." in caught.value.message
    assert caught.value.next_step == "start it; then start it again."


@req("C60", "C61")
def test_an_hours_outage_costs_two_attempts_a_minute_and_ends_within_one_pause(
    tmp_path: Path,
) -> None:
    """The child works from a simulated hour on."""
    now, paths, back = [0.0], StatePaths(tmp_path), tmp_path / "back"
    code = (
        f"import os, time\nif not os.path.exists({str(back)!r}): raise SystemExit({EXIT_RETRY})\n"
    )
    spec = child(f"{code}while True: time.sleep(60)")
    with Supervisor(paths, [spec], clock=lambda: now[0]) as supervisor:
        life = Simulated(supervisor, now)
        while now[0] < 3_600:
            life.death(lived_s=0.1)
        restarts = supervisor.restarts["capture"]
        assert 100 < restarts < 130
        back.touch()
        # Its pause is over by now, and it stays.
        until(polled(supervisor, lambda: supervisor.pids), "the start")
        assert supervisor.restarts["capture"] == restarts + 1


@req("C60", "C63")
def test_an_hours_outage_of_the_state_database_is_waited_out(tmp_path: Path) -> None:
    """Somebody holds it for a simulated hour; the child is a process that asks for a dump."""
    now, paths = [0.0], StatePaths(tmp_path)
    StateStore(paths.database).close()
    code = (
        "import sys, time\n"
        "from headrace.errors import HeadraceError, Retry\n"
        "from headrace.model.schema import TableId\n"
        "from headrace.state.store import StateStore\n"
        "try:\n"
        f"    StateStore({str(paths.database)!r}, 0.01).submit('TABLE', TableId('public', 't'))\n"
        "except HeadraceError as error:\n"
        f"    sys.exit({EXIT_RETRY} if error.retry is Retry.TIMED else {EXIT_STOP})\n"
        "while True: time.sleep(60)"
    )
    policy = RestartPolicy(longest_s=600.0)
    with (
        closing(sqlite3.connect(paths.database)) as holder,
        Supervisor(paths, [child(code)], policy=policy, clock=lambda: now[0]) as supervisor,
    ):
        holder.execute("BEGIN EXCLUSIVE")
        life = Simulated(supervisor, now, pause_s=600.0)
        while now[0] < 3_600:
            life.death(lived_s=0.1)
        holder.rollback()
        until(polled(supervisor, lambda: supervisor.pids), "the start")
        with closing(StateStore(paths.database)) as store:
            until(store.requests, "what the child had to write")


@req("C10")
def test_what_worked_in_between_counts_anew_and_what_got_nowhere_does_not(tmp_path: Path) -> None:
    now, paths = [0.0], StatePaths(tmp_path)
    policy = RestartPolicy(for_s=600.0)
    worked = reporting(paths, {"stuck_s": 5.0}, EXIT_RETRY)
    with Supervisor(paths, [worked], policy=policy, clock=lambda: now[0]) as supervisor:
        life = Simulated(supervisor, now)
        life.deaths(100.0, 20)
    stuck = reporting(paths, {"stuck_s": 99.0}, EXIT_RETRY)
    with Supervisor(paths, [stuck], policy=policy, clock=lambda: now[0]) as supervisor:
        life = Simulated(supervisor, now)
        with pytest.raises(RetriesExhausted):
            life.deaths(100.0, 20)


@req("C-3")
def test_a_stop_does_not_wait_for_the_next_attempt(tmp_path: Path) -> None:
    policy = RestartPolicy(first_s=3_600, longest_s=3_600)
    spec = child(f"raise SystemExit({EXIT_RETRY})")
    with Supervisor(StatePaths(tmp_path), [spec], policy=policy) as supervisor:
        until(polled(supervisor, lambda: supervisor.waiting), "the death")
        began = time.monotonic()
    assert time.monotonic() - began < 600


def test_crash_after_crash_stops_with_the_last_words(tmp_path: Path) -> None:
    policy = RestartPolicy(first_s=0.001, longest_s=0.001, crashes=3)
    spec = child("raise SystemExit('the last words')")
    with (
        pytest.raises(HeadraceError, match=r"ended 3 times in a row.*the last words") as caught,
        Supervisor(StatePaths(tmp_path), [spec], policy=policy) as supervisor,
    ):
        until(polled(supervisor, lambda: False), "the supervisor to give up")
    assert "capture.log" in caught.value.next_step


@req("C-2")
def test_an_error_for_a_person_stops_everything_and_is_shown_whole(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    report = {
        "process": "capture",
        "state": "failed",
        "updated_us": 1,
        "detail": {},
        "error": {
            "name": "SlotLost",
            "message": "slot s is gone.",
            "next_step": "resync.",
            "retry": "manual",
        },
    }
    code = (
        "import json, os\n"
        f"report = json.loads({json.dumps(json.dumps(report))})\n"
        f"open({str(paths.status('capture'))!r}, 'w').write(json.dumps(report | {{'pid': os.getpid()}}))\n"
        f"raise SystemExit({EXIT_STOP})"
    )
    with Supervisor(paths, [child(code), child(FOREVER, "apply")], policy=FAST) as supervisor:
        supervisor.poll()
        other = supervisor.pids["apply"]
        with pytest.raises(SlotLost) as caught:
            until(polled(supervisor, lambda: False), "the error")
    assert (caught.value.message, caught.value.next_step) == ("slot s is gone.", "resync.")
    assert not alive(other)


@req("A-19")
def test_a_second_supervisor_on_the_folder_is_refused(tmp_path: Path) -> None:
    with Supervisor(StatePaths(tmp_path), [child(FOREVER)], policy=FAST) as first:
        first.poll()
        with pytest.raises(LeaseLost, match="already runs"), Supervisor(StatePaths(tmp_path), []):
            pass
        first.poll()
        assert alive(first.pids["capture"]), "the refused one leaves the first alone"


def test_stopping_ends_grandchildren_too(tmp_path: Path) -> None:
    told = tmp_path / "grandchild"
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {FOREVER!r}])\n"
        f"open({str(told)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(600)"
    )
    with Supervisor(StatePaths(tmp_path / "state"), [child(code)], policy=FAST) as supervisor:
        supervisor.poll()
        grandchild = int(until(lambda: told.exists() and told.read_text(), "the grandchild"))
    assert not alive(grandchild)


@req("C88")
def test_a_child_that_ignores_the_request_is_killed_in_bounded_time(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w')\ntime.sleep(600)"
    )
    with Supervisor(StatePaths(tmp_path / "state"), [child(code)], policy=FAST) as supervisor:
        supervisor.poll()
        until(ready.exists, "the child to be ready")
        pid = supervisor.pids["capture"]
        supervisor.stop(timeout_s=0.2)
        assert not alive(pid)


def test_what_a_killed_supervisor_left_is_gone_before_the_next_one_starts(tmp_path: Path) -> None:
    state, told = tmp_path / "state", tmp_path / "child"
    # The child does not tie itself to its parent, as a JVM below a worker does not.
    code = f"import os\nopen({str(told)!r}, 'w').write(str(os.getpid()))\n" + FOREVER
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from headrace.replicator.paths import StatePaths\n"
        "from headrace.replicator.supervisor import ChildSpec, Supervisor\n"
        f"spec = ChildSpec('capture', (sys.executable, '-c', {code!r}))\n"
        f"with Supervisor(StatePaths(Path({str(state)!r})), [spec]) as s:\n"
        "    while True:\n        s.poll()\n        time.sleep(0.05)"
    )
    killed = subprocess.Popen([sys.executable, "-c", script])
    left = int(until(lambda: told.exists() and told.read_text(), "the child"))
    killed.kill()
    killed.wait()
    assert alive(left)

    with Supervisor(StatePaths(state), []):
        assert not alive(left)


def test_what_is_left_is_gone_with_all_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies lets go of its environment first: who does not carry the folder may still hold its locks."""
    left = subprocess.Popen([sys.executable, "-c", FOREVER])
    carriers = iter([[left.pid], []])
    monkeypatch.setattr(orphans, "_carriers", lambda _: next(carriers, []))
    dies = threading.Timer(0.5, os.kill, (left.pid, signal.SIGKILL))

    def kill(_pid: int, _signal: int) -> None:
        if dies.ident is None:
            dies.start()

    monkeypatch.setattr(os, "kill", kill)
    try:
        assert orphans.end_orphans(tmp_path) == 1
        assert not alive(left.pid)
    finally:
        monkeypatch.undo()
        dies.cancel()
        left.kill()
        left.wait()


def test_logs_stay_small(tmp_path: Path) -> None:
    # A line may be lost where the log is cut while the child writes: the end is said again and again.
    code = (
        "import time\nfor i in range(120000): print('x' * 60, i)\n"
        "while True: print('the end'); time.sleep(0.05)"
    )
    with Supervisor(StatePaths(tmp_path), [child(code)], policy=FAST) as supervisor:
        log = StatePaths(tmp_path).log("capture")
        until(
            polled(supervisor, lambda: supervisor.last_lines("capture", 1) == ["the end"]),
            "the last line",
        )
        supervisor.poll()
        assert log.stat().st_size <= 4 * 2**20
        assert any("x" * 60 in line for line in supervisor.last_lines("capture", 10_000))
