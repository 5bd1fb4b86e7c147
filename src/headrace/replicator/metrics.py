"""A replicator's numbers as Prometheus samples.

In: a picture, which holds what the newest frontier counted. Out: families for `headrace.observe.exposition`. Pure.
Counters of tables rise when a frontier is published and never by a replay; they go on over restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.lake.counts import Delays
from headrace.observe.exposition import Family, Kind, number
from headrace.observe.status import ProcessState
from headrace.replicator.picture import Picture, TablePicture

__all__ = ["METRICS", "families", "plain"]

_OPERATIONS = {
    "headrace_inserts_total": (
        "inserts",
        "Rows of the source that came to be, as the target has them.",
    ),
    "headrace_updates_total": ("updates", "Rows that changed; one whose key changed counts once."),
    "headrace_deletes_total": ("deletes", "Rows that ceased to be."),
    "headrace_truncates_total": ("truncates", "Times that all rows of the table ceased to be."),
    "headrace_ddl_total": (
        "ddl",
        "Descriptions of the table that the log told, the first included.",
    ),
    "headrace_copied_rows_total": ("copied", "Rows that dumps read."),
    "headrace_changes_total": ("rows", "Change rows; an update with its old image is two."),
    "headrace_bytes_total": ("bytes", "Bytes of these in the change log."),
    "headrace_errors_total": ("errors", "Attempts to bring the table forward that failed."),
}
"""The counters of a table: the field of `headrace.lake.counts.TableCounts`, and what it is."""

_PHASES = ("waiting", "copying", "paused", "incomplete", "live", "failing", "left")
_STEPS = ("probe", "write", "commit")

METRICS: Mapping[str, tuple[Kind, tuple[str, ...], str]] = {
    **{name: ("counter", ("table",), said) for name, (_, said) in _OPERATIONS.items()},
    "headrace_freshness_seconds": (
        "histogram",
        ("table",),
        "Time from commit to visible of the transactions that changed the table.",
    ),
    "headrace_lag_changes": ("gauge", ("table",), "Change rows in the log that the target lacks."),
    "headrace_lag_seconds": (
        "gauge",
        ("table",),
        "Age of the oldest of them; 0 when there is none.",
    ),
    "headrace_table_phase": ("gauge", ("table", "phase"), "1 for the phase that the table is in."),
    "headrace_dump_rows_read": (
        "gauge",
        ("table",),
        "Rows that the running or last dump has read.",
    ),
    "headrace_dump_rows_estimated": ("gauge", ("table",), "Rows that the catalog promised it."),
    "headrace_replicator_errors_total": (
        "counter",
        (),
        "Attempts to bring a table forward that failed, of all tables.",
    ),
    "headrace_replicator_freshness_seconds": (
        "histogram",
        (),
        "Time from commit to visible of every transaction, visible in all live tables at once.",
    ),
    "headrace_replicator_lag_changes": ("gauge", (), "Change rows that the frontier lacks."),
    "headrace_replicator_lag_seconds": (
        "gauge",
        (),
        "Age of the oldest transaction that it lacks; absent before the first frontier.",
    ),
    "headrace_frontier_scn": ("gauge", (), "The tables show the source as of this SCN."),
    "headrace_frontier_commit_seconds": ("gauge", (), "Commit time of it, seconds since 1970."),
    "headrace_frontier_changes": ("gauge", (), "Number of its last change."),
    "headrace_captured_scn": ("gauge", (), "Last whole transaction of the change log."),
    "headrace_log_bytes": ("gauge", (), "What the change log takes on disk."),
    "headrace_log_budget_bytes": ("gauge", (), "What it may take before capture waits."),
    "headrace_slot_retained_bytes": ("gauge", (), "Log that the source keeps for us."),
    "headrace_fetch_unread_transactions": (
        "gauge",
        (),
        "Transactions in the source's change tables that were not read.",
    ),
    "headrace_fetch_queries_total": ("counter", (), "Queries of the source's change tables."),
    "headrace_fetch_rows_total": ("counter", (), "Rows that came by them."),
    "headrace_fetch_seconds_total": ("counter", (), "How long the source took for them."),
    "headrace_fetch_slow_queries_total": (
        "counter",
        (),
        "Those that took longer than source.slow_query_s.",
    ),
    "headrace_stage_up": ("gauge", ("stage",), "1 while the process runs and says so."),
    "headrace_stage_restarts_total": ("counter", ("stage",), "Restarts in this run."),
    "headrace_capture_changes_total": (
        "counter",
        (),
        "Changes that capture made durable since it began.",
    ),
    "headrace_apply_batches_total": ("counter", (), "Batches with rows since apply began."),
    "headrace_apply_seconds_total": (
        "counter",
        ("table", "step"),
        "Seconds of looking for rows, writing and committing since apply began.",
    ),
    "headrace_objective_share": ("gauge", (), "Share of transactions that is to be in time."),
    "headrace_objective_within_seconds": ("gauge", (), "What in time is."),
    "headrace_objective_attained": (
        "gauge",
        (),
        "Share that was; absent while there was nothing to be in time.",
    ),
    "headrace_objective_missed": ("gauge", (), "1 while the objective is missed."),
    "headrace_activity_dropped": (
        "gauge",
        ("table",),
        "1 while far fewer operations become visible than before.",
    ),
}
"""Every metric: its kind, its labels beside ``replicator`` and ``namespace``, and what it is."""


_FETCHES = {
    "headrace_fetch_unread_transactions": "unread_transactions",
    "headrace_fetch_queries_total": "fetch_queries",
    "headrace_fetch_rows_total": "fetch_rows",
    "headrace_fetch_seconds_total": "fetch_seconds",
    "headrace_fetch_slow_queries_total": "fetch_slow",
}
"""Where the source keeps changes in tables: what the watch of them says."""


def families(name: str, picture: Picture, namespace: str = "") -> list[Family]:
    """Return all samples of a replicator.

    Args:
        name: of the replicator: the label ``replicator``.
        picture: of the moment.
        namespace: the label of that name; empty for none.
    """
    one = _Samples({"replicator": name, **({"namespace": namespace} if namespace else {})})
    for table in picture.tables:
        _table(one, table)
    _whole(one, picture)
    _stages(one, picture)
    _objective(one, picture)
    _drops(one, picture)
    return [family for family in one.families.values() if family.samples]


def plain(found: Iterable[Family]) -> list[dict[str, Any]]:
    """Return samples as plain values."""
    return [
        {
            "name": family.name + sample.suffix,
            "type": family.kind,
            "labels": dict(sample.labels),
            "value": sample.value,
        }
        for family in found
        for sample in family.samples
    ]


class _Samples:
    """Families that fill."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self.families = {
            name: Family(name, kind, said) for name, (kind, _, said) in METRICS.items()
        }

    def add(self, metric: str, value: float, **labels: str) -> None:
        self.families[metric].add(value, {**self._labels, **labels})

    def add_delays(self, metric: str, delays: Delays, **labels: str) -> None:
        every = {**self._labels, **labels}
        family = self.families[metric]
        for bound, count in delays.cumulative():
            family.add(count, {**every, "le": number(bound)}, "_bucket")
        family.add(delays.sum_s, every, "_sum")
        family.add(delays.count, every, "_count")


def _table(one: _Samples, table: TablePicture) -> None:
    for metric, (field, _) in _OPERATIONS.items():
        one.add(metric, getattr(table.counts, field), table=table.name)
    one.add_delays("headrace_freshness_seconds", table.counts.delays, table=table.name)
    one.add("headrace_lag_changes", table.lag_changes, table=table.name)
    if table.lag_s is not None:
        one.add("headrace_lag_seconds", table.lag_s, table=table.name)
    for phase in _PHASES:
        one.add("headrace_table_phase", phase == table.phase, table=table.name, phase=phase)
    one.add("headrace_dump_rows_read", table.rows_read, table=table.name)
    one.add("headrace_dump_rows_estimated", table.rows_estimated, table=table.name)


def _whole(one: _Samples, picture: Picture) -> None:
    errors = sum(table.counts.errors for table in picture.tables)
    one.add("headrace_replicator_errors_total", errors)
    one.add("headrace_replicator_lag_changes", picture.lag_changes)
    if picture.lag_s is not None:
        one.add("headrace_replicator_lag_seconds", picture.lag_s)
    if picture.frontier is not None:
        delays = picture.frontier.totals.delays
        one.add_delays("headrace_replicator_freshness_seconds", delays)
        one.add("headrace_frontier_commit_seconds", picture.frontier.commit_us / 1e6)
    one.add("headrace_frontier_scn", picture.frontier_scn)
    one.add("headrace_frontier_changes", picture.frontier_changes)
    one.add("headrace_captured_scn", picture.captured_scn)
    one.add("headrace_log_bytes", picture.log_bytes)
    one.add("headrace_log_budget_bytes", picture.log_budget_bytes)
    retained = picture.slot.get("retained_bytes")
    if retained is not None:
        one.add("headrace_slot_retained_bytes", retained)
    for name, key in _FETCHES.items():
        if key in picture.slot:
            one.add(name, picture.slot[key])


def _stages(one: _Samples, picture: Picture) -> None:
    for stage, role in picture.roles.items():
        one.add("headrace_stage_up", role.state is ProcessState.RUNNING, stage=stage)
    for stage, restarts in picture.restarts.items():
        one.add("headrace_stage_restarts_total", restarts, stage=stage)
    capture, apply = (picture.roles.get(stage) for stage in ("capture", "apply"))
    if capture is not None and "changes" in capture.detail:
        one.add("headrace_capture_changes_total", capture.detail["changes"])
    if apply is not None and "batches" in apply.detail:
        one.add("headrace_apply_batches_total", apply.detail["batches"])
        for table, said in apply.detail.get("tables", {}).items():
            for step in _STEPS:
                spent = said["all_batches"][f"{step}_s"]
                one.add("headrace_apply_seconds_total", spent, table=table, step=step)


def _objective(one: _Samples, picture: Picture) -> None:
    objective = picture.objective
    if objective is None:
        return
    one.add("headrace_objective_share", objective.share)
    one.add("headrace_objective_within_seconds", objective.within_s)
    one.add("headrace_objective_missed", objective.missed)
    if objective.attained is not None:
        one.add("headrace_objective_attained", objective.attained)


def _drops(one: _Samples, picture: Picture) -> None:
    if picture.drops is None:
        return
    fallen = {drop.table for drop in picture.drops}
    for table in picture.tables:
        one.add("headrace_activity_dropped", table.name in fallen, table=table.name)
