"""Capture, two relays in a chain, six consumers of three kinds and a group of three: killed, frozen, cut, without room.

The short form brings each kind of fault at least once; the long one (``--long``, its length by ``--chaos-minutes``)
each of them at every process it can hit, and keeps its figures beside those of the benchmarks.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from benchmarks import harness
from headrace.changelog import ChangeLogReader
from headrace.client import SqlGroupStore
from headrace.testing.line_faults import FaultyLine
from headrace.testing.postgres import EmbeddedPostgres
from tests.faults.chaos import source
from tests.faults.chaos.consumer import GROUP, KINDS, SOURCE
from tests.faults.chaos.faults import FAULTS, Bite, Faults, Place, planned
from tests.faults.chaos.kept import Kept
from tests.faults.chaos.processes import Keeper, Running, lasting_port
from tests.faults.chaos.told import Told, fold
from tests.faults.disks import small_disk
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SEED = 64
MEMBERS = ("member-1", "member-2", "member-3")
SHORT_S = 12.0
WHOLE_MINUTES = 30.0
END_S = 300.0
DISK_BYTES = 256 << 20


class World:
    """Everything that runs, from the first process to the last.

    Args:
        folder: of what processes say and what consumers were told.
        stack: ends everything.
        rng: chooses ports.
    """

    def __init__(self, folder: Path, stack: ExitStack, rng: random.Random) -> None:
        self.folder = folder
        server = stack.enter_context(EmbeddedPostgres(settings=source.SETTINGS))
        self.source = server.create_database("chaos")
        self.database = server.create_database("consumers")
        self.disks = {
            role: stack.enter_context(small_disk(folder / f"disk-{role}", DISK_BYTES))
            for role in ("capture", "follower", "consumer")
        }
        self.engine = sa.create_engine(
            self.database.replace("postgresql://", "postgresql+psycopg://", 1),
            # Chaos ends our own sessions too.
            poolclass=sa.NullPool,
        )
        self.store = SqlGroupStore(self.engine)
        source.make_table(self.source)
        ports = lasting_port(rng), lasting_port(rng)
        upstream, leader, follower = (
            stack.enter_context(FaultyLine(f"http://127.0.0.1:{port}"))
            for port in (ports[0], *ports)
        )
        self.keeper = stack.enter_context(Keeper())
        self.place = Place(
            self.source,
            self.database,
            {"follower": [upstream], "consumer": [leader, follower]},
            self.disks,
            {role: self.disks[role] / "changelog" for role in ("capture", "follower")},
        )
        self._start(ports, upstream.url, [leader.url, follower.url])

    @property
    def told(self) -> dict[str, Told]:
        """What each consumer was told until now."""
        for one in self._told.values():
            one.read()
        return self._told

    def wait(self, condition: Any, what: str) -> None:
        """Wait for a condition while all processes are as they should be."""

        def holds() -> bool:
            self.keeper.check()
            return bool(condition())

        until(holds, what, END_S, 0.1)

    def _start(self, ports: tuple[int, int], upstream: str, relays: list[str]) -> None:
        leads, follows = self.folder / "leads.yaml", self.folder / "follows.yaml"
        leads.write_text(
            f"name: {SOURCE}\n"
            f"source: {{type: postgres, url: {json.dumps(self.source)}, tables: ['public.*']}}\n"
            "target: {type: delta, path: ./lake}\n"
            f"changelog: {{segment: 1MiB}}\nstate: {{dir: {self.disks['capture']}}}\n"
            f"relay: {{listen: '127.0.0.1:{ports[0]}', heartbeat_s: 0.5}}\n"
        )
        follows.write_text(
            f"name: {SOURCE}\n"
            f"changelog: {{segment: 1MiB}}\nstate: {{dir: {self.disks['follower']}}}\n"
            f"relay: {{listen: '127.0.0.1:{ports[1]}', heartbeat_s: 0.5, "
            f"upstream: {{urls: ['{upstream}'], read_timeout_s: 3}}}}\n"
        )
        self._run("capture", "capture", "headrace.replicator.capture_process", str(leads))
        self._run("leader", "leader", "headrace.cli.main", "relay", str(leads))
        self._run("follower", "follower", "headrace.cli.main", "relay", str(follows))
        names = [name for kind in KINDS.values() for name in kind]
        for i, name in enumerate((*names, *MEMBERS)):
            role = "member" if name in MEMBERS else "consumer"
            # Half of them prefer the one relay, half the other.
            urls = relays[:: 1 - 2 * (i % 2)]
            words = (name, str(self.folder), str(self.disks["consumer"]), self.database, *urls)
            self._run(name, role, "tests.faults.chaos.consumer", *words)
        self._told = {name: Told(self.folder / f"{name}.lines") for name in names}

    def _run(self, name: str, role: str, *words: str) -> None:
        self.keeper.start(Running(name, role, words, self.folder / f"{name}.log"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack, random.Random())


@req("D44", "D49", "D10", "D108", "F11")
@pytest.mark.timeout(1_200)
def test_whatever_breaks_every_consumer_ends_with_the_state_of_the_source(world: World) -> None:
    broken(world, SHORT_S, 1)


@req("D44", "D49", "D10", "D108", "F11")
@pytest.mark.long
@pytest.mark.timeout(10_800)
def test_half_an_hour_of_whatever_breaks_leaves_every_consumer_with_the_state_of_the_source(
    world: World, request: pytest.FixtureRequest
) -> None:
    minutes = request.config.getoption("--chaos-minutes")
    faults, figures = broken(world, minutes * 60, 5)
    hits = [Bite(kind, role) for kind, roles in FAULTS.items() for role in roles]
    missed = [hit for hit in hits if not faults.bites[hit]]
    assert missed == []
    assert faults.takeovers
    is_whole = minutes >= WHOLE_MINUTES
    harness.write(
        "chaos",
        seed=SEED,
        sizes={"minutes": minutes, "consumers": len(world.told), "members": len(MEMBERS)},
        runs=[figures],
        summary={
            "violations": 0,
            "least_bites": min(map(faults.of_kind, FAULTS)),
            "faults": faults.bites.total(),
            "duplicates_per_million": 1e6
            * summed(figures, "duplicates")
            / summed(figures, "deliveries"),
        },
        measured_on=harness.machine(),
        folder=harness.RESULTS if is_whole else harness.QUICK_RESULTS,
    )


def broken(world: World, seconds: float, least: int) -> tuple[Faults, dict[str, int]]:
    """Break things for some time, and check everything that has to be true in the end.

    Args:
        world: in which.
        seconds: for how long at least.
        least: how often each kind of fault has to bite.
    """
    faults = Faults(world.keeper, world.place, world.store, random.Random(SEED))
    world.wait(
        lambda: all(one.deliveries for one in world.told.values()), "all were told something"
    )
    world.wait(lambda: owners(world) == len(MEMBERS), "all members own something")
    plan, pause, rng = planned(random.Random(SEED)), threading.Event(), random.Random(SEED)
    begun = time.monotonic()
    with source.writes(world.source, random.Random(SEED)):
        while time.monotonic() - begun < seconds or min(map(faults.of_kind, FAULTS)) < least:
            fault = next(plan)
            print(f"{time.monotonic() - begun:8.1f} s  {fault.kind}: {fault.role}", flush=True)
            faults.bring(fault)
            pause.wait(rng.uniform(0.1, 0.6))
    ended(world)
    figures = {
        **{f"{bite.kind}: {bite.role}": n for bite, n in sorted(faults.bites.items())},
        "frozen members succeeded": faults.takeovers,
        **judged(world),
        **{f"bytes of the log of {role}": held(log) for role, log in world.place.logs.items()},
    }
    print("\n".join(f"{n:>9,}  {name}" for name, n in figures.items()))
    assert min(map(faults.of_kind, FAULTS)) >= least
    source.is_left_alone(world.source)
    return faults, figures


def summed(figures: dict[str, int], name: str) -> int:
    """Return the sum of all figures whose names begin so."""
    return sum(figure for key, figure in figures.items() if key.startswith(name))


def held(log: Path) -> int:
    """Return what the segments of a change log take."""
    return ChangeLogReader(log).used_bytes()


def owners(world: World) -> int:
    """Return how many members own partitions."""
    state = world.store.read(GROUP)
    return len({p.owner for p in state.partitions if p.owner}) if state else 0


def ended(world: World) -> None:
    """Wait until every consumer has what the source has, and end all processes."""
    wanted = source.rows_of(world.source)
    for name in world.told:
        world.wait(lambda name=name: world.told[name].rows == wanted, f"the state at {name}")
    last = max(world.told["file"].places)[0]

    def is_processed() -> bool:
        state = world.store.read(GROUP)
        return state is not None and all(p.place.scn >= last for p in state.partitions)

    world.wait(is_processed, "the state at the group")
    world.wait(lambda: copied(world) == wanted, "the state in the database")
    world.keeper.check()
    with ExitStack() as stack:
        for process in world.keeper.processes:
            assert stack.enter_context(process.frozen())
        source.takes_writes(world.source)
    world.keeper.end()
    written: dict[int, int] = {}
    lines = (world.disks["consumer"] / "ndjson.out").read_bytes().splitlines()
    fold((said for said in map(json.loads, lines) if "op" in said), written)
    assert written == wanted
    for name in ("own", "shared"):
        assert Kept(world.engine, name).rows == wanted


def copied(world: World) -> dict[int, int]:
    """Return the rows that the output into a database has."""
    with psycopg.connect(world.database) as connection:
        return dict(connection.execute("SELECT id, v FROM public.t").fetchall())


def judged(world: World) -> dict[str, int]:
    """Check what consumers were told and kept; return the deliveries and duplicates of each."""
    figures: dict[str, int] = {}
    told = world.told
    for name, one in told.items():
        assert one.wrong == [], name
        assert one.places == told["file"].places, name
        figures |= {
            f"deliveries to {name}": one.deliveries,
            f"duplicates at {name}": one.duplicates,
        }
    shares = [Told(path).read() for path in world.folder.glob("member-*.lines")]
    assert [wrong for one in shares for wrong in one.wrong] == []
    for name in ("own", "shared"):
        kept = Kept(world.engine, name)
        assert kept.wrong == []
        # Each change once, whatever was told twice.
        assert len(set(kept.places)) == len(kept.places)
        # Who was succeeded stored nothing any more.
        assert all(owners == sorted(set(owners)) for owners in kept.owners.values())
        if name == "own":
            assert set(kept.places) == told["file"].places
        else:
            deliveries = sum(one.deliveries for one in shares)
            figures["deliveries to the group"] = deliveries
            figures["duplicates at the group"] = deliveries - len(kept.places)
            figures["owners of partitions"] = sum(map(len, kept.owners.values()))
    return figures | {f"kills of {name}": n for name, n in world.keeper.kills().items()}
