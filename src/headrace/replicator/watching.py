"""What a run does with its pictures beside showing them: activity, alerts, lineage, and numbers for Prometheus.

In: pictures as they come. Out: the database of minutes, calls of a webhook, lineage events, ``/metrics``. None of it
holds the run up, and none that fails ends it, but an address that cannot be listened at when the run begins.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.errors import StateError
from headrace.replicator.alert import Alerts
from headrace.replicator.config import Config
from headrace.replicator.drop_alert import DropAlerts
from headrace.replicator.drops import DropWatch, rule_of
from headrace.replicator.minutes import MinuteKeeper
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture
from headrace.state.minutes import HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from headrace.outputs.webhook import Webhook
    from headrace.replicator.lineage.publisher import Publisher
    from headrace.replicator.observe_config import DropConfig, ObjectiveConfig

__all__ = ["Watching"]

_log = logging.getLogger(__name__)


class Watching:
    """Use it in a ``with`` block.

    Args:
        config: of the replicator.
        picture: returns the newest one; called from any thread.
        clock: seconds since 1970 UTC.

    Attributes:
        port: at which ``/metrics`` is served; 0 where it is not.
    """

    def __init__(
        self,
        config: Config,
        picture: Callable[[], Picture],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._picture = picture
        self._clock = clock
        self._paths = StatePaths.of(config)
        self._stack = contextlib.ExitStack()
        self._keeper: MinuteKeeper | None = None
        self._alerts: Alerts | None = None
        self._drops: DropWatch | None = None
        self._drop_alerts: DropAlerts | None = None
        self._lineage: Publisher | None = None
        self.port = 0

    def __enter__(self) -> Watching:
        with contextlib.ExitStack() as stack:
            if self._config.metrics is not None:
                self._serve(stack)
            self._open(stack)
            self._trace(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def take(self, picture: Picture) -> None:
        """Take a picture."""
        if self._keeper is not None:
            try:
                self._keeper.take(picture.frontier)
            except StateError as error:
                _log.warning("activity is not kept: %s", error)
            self._watch(picture)
        if self._alerts is not None:
            self._alerts.take(picture.objective)
        if self._lineage is not None:
            self._lineage.take(picture)

    def fail(self, error: BaseException) -> None:
        """Note the error that ends the run."""
        if self._lineage is not None:
            self._lineage.fail(error)

    def _watch(self, picture: Picture) -> None:
        """See whether the operations of a table have fallen, and tell who is to know."""
        if self._drops is None:
            return
        tables = {table.name for table in picture.tables if table.phase != "left"}
        frontier, paused = picture.frontier, picture.log_paused
        try:
            fallen = self._drops.take(self._clock(), frontier, tables, paused=paused)
        except StateError as error:
            _log.warning("activity is not watched: %s", error)
            return
        if self._drop_alerts is not None:
            self._drop_alerts.take(fallen)

    def _open(self, stack: contextlib.ExitStack) -> None:
        """Open the database of minutes, and what stands on it; without it the run goes on."""
        objective, kept = self._config.objective, self._config.activity
        path, name = self._paths.activity, self._config.name
        rule = rule_of(kept)
        looked_at = (objective.over_s if objective else 0, rule.kept_s if rule else 0)
        kept_s = {MINUTE_S: max(kept.minutes_s, *looked_at), HOUR_S: kept.hours_s}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            keeper = MinuteKeeper(path, self._picture().frontier, kept_s)
            self._keeper = stack.enter_context(contextlib.closing(keeper))
            if objective is not None and objective.webhook is not None:
                alerts = Alerts(name, _webhook(objective), path)
                self._alerts = stack.enter_context(contextlib.closing(alerts))
            if rule is not None and kept.drop is not None:
                watch = DropWatch(path, rule, self._clock())
                self._drops = stack.enter_context(contextlib.closing(watch))
                if kept.drop.webhook is not None:
                    told = DropAlerts(name, _webhook(kept.drop), path)
                    self._drop_alerts = stack.enter_context(contextlib.closing(told))
        except (StateError, OSError) as error:
            _log.warning("activity is not kept in this run: %s", error)

    def _trace(self, stack: contextlib.ExitStack) -> None:
        """Begin to tell of lineage where that is asked for; the run goes on without."""
        if self._config.lineage is None:
            return
        from headrace.replicator.lineage.publisher import Publisher

        try:
            publisher = Publisher(self._config, self._picture())
        except OSError as error:
            _log.warning("lineage is not told in this run: %s", error.strerror)
            return
        self._lineage = stack.enter_context(contextlib.closing(publisher))

    def _serve(self, stack: contextlib.ExitStack) -> None:
        # A server is loaded where one is asked for.
        from headrace.replicator.metrics import families
        from headrace.replicator.metrics_server import MetricsServer

        assert self._config.metrics is not None
        name = self._config.name
        server = MetricsServer(self._config.metrics, lambda: families(name, self._picture()))
        self.port = stack.enter_context(server).port


def _webhook(told: ObjectiveConfig | DropConfig) -> Webhook:
    from headrace.outputs.webhook import Webhook, WebhookSettings

    assert told.webhook is not None
    secret = told.secret.get_secret_value().encode() if told.secret else None
    return Webhook(WebhookSettings(told.webhook.get_secret_value(), secret))
