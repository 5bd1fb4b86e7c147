"""The demo from its first line to its last.

Starts a server of its own, fills the shop, lets traffic loose, and runs a replicator on it the
way a user would; compares source and target while writes go on and again after they stopped. Every
part it uses is the one that ships.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headrace.demo.freshness import Freshness, measure
from headrace.demo.place import Place
from headrace.demo.servers import KINDS, Started
from headrace.demo.shops import shop_of
from headrace.demo.show import Story
from headrace.demo.traffic import TrafficProcess
from headrace.errors import PreflightFailed, StateError
from headrace.plural import counted
from headrace.replicator import config_file, runner
from headrace.replicator.config import Config, MysqlConfig, PostgresConfig
from headrace.replicator.picture import Picture
from headrace.replicator.run import Run
from headrace.replicator.verify_report import VerifyReport
from headrace.sources.base import Severity

__all__ = ["DemoSettings", "Outcome", "play"]

Show = Callable[[Picture, str], None]


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How the demo is played.

    Attributes:
        place: its folder.
        seconds: how long the traffic lasts, at least; longer when the copy takes longer.
        rate: transactions per second that are tried.
        rows: about how many rows the shop begins with.
        source: the kind of server to copy from, one of `headrace.demo.servers.KINDS`.
        limit_s: the demo gives up after this long.
    """

    place: Place
    seconds: float
    rate: float
    rows: int = 500_000
    source: str = "postgres"
    limit_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        equal: whether both comparisons found source and target equal.
        freshness: of the transactions after the copy was complete.
        rate: committed transactions per second.
        copied_rows_per_s: rows of the dump, over its time.
        seconds: of the whole demo.
    """

    equal: bool
    freshness: Freshness
    rate: float
    copied_rows_per_s: float
    seconds: float


class _InBackground:
    """One comparison that runs while the replicator is looked after."""

    def __init__(self, work: Callable[[], VerifyReport]) -> None:
        self.report: VerifyReport | None = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="verify", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> VerifyReport:
        if self.error is not None:
            raise self.error
        assert self.report is not None
        return self.report

    def _run(self) -> None:
        try:
            self.report = self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            self.error = error


class _Player:
    """Holds what the acts share."""

    def __init__(
        self, settings: DemoSettings, story: Story, show: Show, config: Config, running: Run
    ) -> None:
        self._settings = settings
        self._story = story
        self._show = show
        self._config = config
        self._running = running
        self._phases: dict[str, str] = {}
        self._deadline = time.monotonic() + settings.limit_s

    def wait(
        self, what: str, condition: Callable[[Picture], bool], traffic: TrafficProcess | None = None
    ) -> Picture:
        """Look after everything until the condition holds."""
        while True:
            if not self._running.turn():
                raise KeyboardInterrupt
            picture = self._running.picture
            for happened in traffic.news() if traffic else ():
                self._story.news(happened)
            self._tell_phases(picture)
            self._show(picture, self._running.note)
            if condition(picture):
                return picture
            if time.monotonic() > self._deadline:
                raise StateError(
                    f"demo: {what} was not reached in {self._settings.limit_s:.0f} s.",
                    next_step=f"see the logs in {self._settings.place.state}/logs; try a smaller "
                    "--rate on a slow machine.",
                )

    def compare(self, when: str, traffic: TrafficProcess | None = None) -> bool:
        """Compare all tables, show the result, and return whether they are equal."""
        job = _InBackground(lambda: runner.verify(self._config))
        self.wait(f"the comparison {when}", lambda _picture: job.done, traffic)
        report = job.result()
        for table in report.tables:
            if not table.equal:
                self._story.milestone(
                    "unequal",
                    f"{table.table}: {table.state}, {counted(table.differing_keys, 'key')} different",
                    good=False,
                )
        rows = sum(table.source_rows for table in report.tables)
        verdict = "source = target" if report.equal else "source ≠ target"
        self._story.milestone(
            "verify",
            f"{when}: {verdict} for {sum(t.equal for t in report.tables)} of "
            f"{counted(len(report.tables), 'table')}, {counted(rows, 'row')}",
            good=report.equal,
        )
        return report.equal

    def _tell_phases(self, picture: Picture) -> None:
        for table in picture.tables:
            if self._phases.get(table.name) != table.phase:
                self._phases[table.name] = table.phase
                if table.phase == "live":
                    self._story.milestone(
                        "live", f"{table.name} ({counted(table.rows_read, 'row')} read under load)"
                    )


def play(settings: DemoSettings, console: Console, show: Show) -> Outcome:
    """Play the demo and return what came of it.

    Raises:
        HeadraceError: something broke on the way.
    """
    story = Story(console)
    kind = KINDS[settings.source]
    with kind.start(settings.place.server) as server:
        story.milestone("server", f"{server.name} runs, for this demo alone")
        _fill(server, settings.rows, story)
        file = settings.place.write_config(kind.source_type, server.url)
        config = config_file.load(file)
        _preflight(config, story)
        return _copy(settings, story, show, file, config)


def _fill(server: Started, rows: int, story: Story) -> None:
    loaded = shop_of(server.url).fill(server.url, rows)
    story.milestone(
        "loaded",
        f"{counted(sum(loaded.values()), 'row')} in {counted(len(loaded), 'table')} of a shop",
    )


def _preflight(config: Config, story: Story) -> None:
    findings = [f for f in runner.preflight(config) if f.severity is Severity.ERROR]
    if findings:
        raise PreflightFailed(
            "demo: " + "; ".join(finding.description for finding in findings),
            next_step=" ".join(finding.suggestion for finding in findings),
        )
    story.milestone("preflight", "nothing stands in the way")


def _copy(settings: DemoSettings, story: Story, show: Show, file: Path, config: Config) -> Outcome:
    given = config.source
    # The file is ours, and names a server.
    assert isinstance(given, PostgresConfig | MysqlConfig)
    url = given.url.get_secret_value()
    tables = len(shop_of(url).tables)
    at = (settings.seconds * 0.25, settings.seconds * 0.45, settings.seconds * 0.7)
    big_rows = min(200_000, settings.rows * 2 // 5)
    traffic = TrafficProcess(url, settings.rate, settings.rows, big_rows, at)
    with traffic, Run(file, config) as running:
        running.end_on_signals()
        story.milestone("traffic", f"up to {settings.rate:,.0f} transactions/s from here on")
        player = _Player(settings, story, show, config, running)
        began = time.monotonic()
        picture = player.wait("the end of the copy", lambda now: _all_live(now, tables), traffic)
        copied = sum(table.rows_read for table in picture.tables) / (time.monotonic() - began)
        converged_us = time.time_ns() // 1000
        story.milestone("converged", f"all tables are live; {copied:,.0f} rows/s copied under load")
        equal = player.compare("while writes go on", traffic)
        player.wait(
            "the end of the traffic",
            lambda _picture: time.time() - traffic.started_at >= settings.seconds,
            traffic,
        )
        traffic.stop()
        stopped_us = time.time_ns() // 1000
        story.milestone(
            "stopped",
            f"{counted(traffic.transactions, 'transaction')}, {traffic.rate:,.0f} per second",
        )
        goal_scn, _ = runner.goal(config)
        player.wait("the last transaction in the tables", lambda now: _shows(now, goal_scn))
        story.milestone("caught up", "the tables show the last transaction")
        equal = player.compare("after the writes stopped") and equal
        fresh = measure(config, converged_us, stopped_us)
        story.freshness(fresh, traffic.rate)
    return Outcome(equal, fresh, traffic.rate, copied, story.seconds)


def _all_live(picture: Picture, tables: int) -> bool:
    phases = [table.phase for table in picture.tables]
    return len(phases) >= tables and all(phase == "live" for phase in phases)


def _shows(picture: Picture, goal_scn: int) -> bool:
    return picture.shows(goal_scn)
