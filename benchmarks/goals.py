"""What each figure of a summary means, and the goal it is held to.

A benchmark that keeps a new figure describes it here; the page shows every figure, described or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FIGURES", "Figure", "figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One name of a summary.

    Attributes:
        meaning: in words.
        least: the goal, when more is better.
        most: the goal, when less is better.
    """

    meaning: str
    least: float | None = None
    most: float | None = None

    @property
    def goal(self) -> str:
        """The goal as the page shows it, empty without one."""
        if self.least is not None:
            return f"≥ {self.least:g}"
        return f"≤ {self.most:g}" if self.most is not None else ""

    def is_met(self, value: float) -> bool | None:
        """Return whether a value meets the goal, None without one."""
        if self.least is not None:
            return value >= self.least
        return value <= self.most if self.most is not None else None


_OURS = "ours over theirs, rows/s"
_FASTER = "theirs with deletion vectors over ours, s"

_SENT = (("w1", "pgbench"), ("w5", "one transaction"))

_RELAY_GOALS = {
    ("p50", 1, 1000): 1.0,
    ("p50", 40, 1000): 5.0,
    ("p99", 40, 1000): 20.0,
}

FIGURES: Mapping[str, Mapping[str, Figure]] = {
    "capture": {
        "narrow_vs_pg_recvlogical": Figure(f"worst narrow load and transport, {_OURS}", least=1.0),
        "wide_vs_pg_recvlogical": Figure(f"rows of 2.5 KB, worst transport, {_OURS}", least=0.9),
        "cpu_s_per_million_rows": Figure(
            "CPU seconds per million changes, worst narrow load", most=0.7
        ),
        "cpu_s_per_million_rows_identity_full": Figure("the same with identity FULL", most=1.2),
        "cpu_s_per_million_rows_wide": Figure("the same, rows of 2.5 KB"),
        **{
            f"cpu_s_per_million_rows_{transport}{label}": Figure(
                f"CPU seconds per million changes, worst narrow load, {through}{whose}"
            )
            for transport, through in (("tcp", "by TCP"), ("unix", "by a Unix socket"))
            for label, whose in (("", ""), ("_bare", ": of a client that only keeps bytes"))
        },
        **{
            f"{load}_{transport}_server_share": Figure(
                "processor time of the server during our run over the run's time: its walsender is one process"
            )
            for load in ("w1", "w2", "w3d", "w3f", "w4", "w5")
            for transport in ("tcp", "unix")
        },
        "narrow_vs_bare_client": Figure(
            f"worst narrow load and transport, beside a client that only keeps bytes, {_OURS}"
        ),
        "wide_vs_bare_client": Figure(f"the same, rows of 2.5 KB, {_OURS}"),
        "cpu_s_per_million_rows_narrow_over_bare": Figure(
            "what we take on top of that client, CPU seconds per million changes, worst narrow load"
        ),
        "cpu_s_per_million_rows_wide_over_bare": Figure("the same, rows of 2.5 KB"),
        "rss_mib": Figure("anonymous resident peak, MiB, worst load", most=512),
        "narrow_vs_debezium_connect": Figure(
            f"worst narrow load, whole run, its fastest Connect setting, {_OURS}", least=2.0
        ),
        "narrow_vs_debezium_connect_steady": Figure(
            f"our whole run over its second half, {_OURS}", least=1.5
        ),
        "narrow_vs_debezium_json": Figure(
            f"whole run, its fastest JSON setting, {_OURS}", least=3.0
        ),
        "narrow_cpu_debezium_over_ours": Figure(
            "CPU per change, whole run, its cheapest Connect setting over ours", least=20
        ),
        "narrow_cpu_debezium_over_ours_steady": Figure("the same, its second half over our run"),
        "wide_vs_debezium_connect": Figure(f"rows of 2.5 KB, whole run, {_OURS}"),
        "wide_vs_debezium_connect_steady": Figure(f"our whole run over its second half, {_OURS}"),
        "wide_vs_debezium_json": Figure(f"rows of 2.5 KB, {_OURS}"),
        "wide_cpu_debezium_over_ours": Figure(
            "CPU per change, rows of 2.5 KB, its cheapest Connect setting over ours", least=8
        ),
        "wide_cpu_debezium_over_ours_steady": Figure("the same, its second half over our run"),
        "memory_debezium_over_ours": Figure(
            "memory at the smallest heap that keeps 95 % of its rate, over ours", least=2.0
        ),
        "debezium_smallest_rss_mib": Figure("that memory, MiB"),
        "start_s": Figure("process start to the first change in the change log, s"),
        "debezium_start_s": Figure("process start to the first record, Debezium, s"),
        "p50_ms_idle": Figure(
            "statement to readable by another process, idle server, ms", most=1.0
        ),
        "p50_ms_idle_bare": Figure("the same of a client that only receives, syncs and tells"),
        "p99_ms_idle_bare": Figure("its 99th percentile"),
        "p99_ms_idle": Figure("the same, 99th percentile"),
        "p99_ms_1000tps": Figure("the same at 1,000 tx/s, 99th percentile", most=5.0),
        "p99_ms_1000tps_bare": Figure("that of the bare client"),
        "p99_ms_5000tps_bare": Figure("that of the bare client at 5,000 tx/s"),
        "p99_ms_5000tps": Figure("the same at 5,000 tx/s, 99th percentile", most=5.0),
        "inside_p99_ms_1000tps": Figure(
            "read from the socket to readable, 1,000 tx/s, 99th percentile, ms", most=3.0
        ),
        "inside_p99_ms_5000tps": Figure("the same at 5,000 tx/s, 99th percentile", most=3.0),
    },
    "chunks": {
        "idle_vs_adbc": Figure(f"dump into the change log, {_OURS}", least=1.0),
        "idle_vs_debezium_incremental": Figure(
            f"its fastest incremental snapshot, idle server, {_OURS}", least=12
        ),
        "full_load_vs_debezium_incremental": Figure(f"the same at full load, {_OURS}", least=8),
        "steady_load_vs_debezium_incremental": Figure(f"the same at a steady load, {_OURS}"),
        "steady_load_loss": Figure("share of its rate that the steady load loses", most=0.05),
        "full_load_loss": Figure("share of its rate that the full load loses"),
        "log_p99_ratio_during_dump": Figure(
            "99th percentile of log latency during a dump over before it", most=2.0
        ),
        "log_p99_ratio_during_selects": Figure(
            "the same ratio, the dump's selects alone, nothing of them kept"
        ),
        "log_p99_ms_during_dump": Figure("that latency during the dump, ms"),
        "log_p99_ratio_debezium_best": Figure("the same ratio, Debezium's best setting"),
        "idle_rows_per_s": Figure("rows/s of a dump on an idle server"),
    },
    "mysql": {
        name: value
        for kind in ("mysql", "mariadb")
        for name, value in {
            f"{kind}_narrow_rows_per_s": Figure(f"{kind}: changes a second as Arrow batches"),
            f"{kind}_narrow_into_log_rows_per_s": Figure(
                "the same into the change log on disk", least=2_000_000
            ),
            f"{kind}_narrow_cpu_s_per_million": Figure(
                "CPU seconds of a million changes as Arrow batches"
            ),
            f"{kind}_narrow_waiting_share": Figure(
                "share of that time in which our reader waits for the server"
            ),
            f"{kind}_narrow_vs_raw": Figure(
                f"a client that only receives the bytes, {_OURS}", least=0.3
            ),
            f"{kind}_narrow_vs_go_mysql": Figure(f"go-mysql, {_OURS}", least=3),
            f"{kind}_narrow_vs_java_connector": Figure(f"the Java connector, {_OURS}", least=3),
            f"{kind}_narrow_vs_python_mysql_replication": Figure(
                f"python-mysql-replication, {_OURS}", least=100
            ),
            f"{kind}_narrow_vs_debezium": Figure(f"Debezium's own engine, {_OURS}", least=30),
            f"{kind}_chunk_rows_per_s": Figure("rows a second of a table, chunk by chunk"),
            f"{kind}_chunks_vs_connectorx": Figure(f"connectorx, {_OURS}", least=1.5),
            f"{kind}_chunks_cpu_of_connectorx": Figure(
                "CPU per row, ours over connectorx's", most=0.25
            ),
            f"{kind}_chunks_vs_drain": Figure(
                f"a client that receives one select's rows and looks at none, {_OURS}"
            ),
            f"{kind}_drain_vs_connectorx": Figure(
                "such a client over connectorx, rows/s: what the server alone allows one connection"
            ),
            f"{kind}_chunks_server_share": Figure(
                "processor time of the server during a dump over the dump's time: its one connection is one thread"
            ),
            f"{kind}_chunks_waiting_share": Figure(
                "share of a dump's time in which our reader waits for the server"
            ),
        }.items()
    },
    "control": {
        "list_p99_ms": Figure(
            "list of all replicators, 99th percentile, worst round, ms", most=100
        ),
        "detail_p99_ms": Figure("detail of one of them, the same", most=100),
        "rss_mib": Figure("anonymous resident memory of the control plane, MiB"),
        "list_p50_ms": Figure("list, median, ms"),
        "detail_p50_ms": Figure("detail, median, ms"),
        "idle_cores": Figure("cores that it takes while nobody asks"),
    },
    "memory": {
        name: Figure(f"anonymous resident peak, MiB: {what}", most=512)
        for name, what in (
            ("transaction_rss_mib", "one transaction"),
            ("tables_rss_mib", "1,000 tables"),
            ("wide_rss_mib", "rows of 2.5 KB"),
            ("backlog_rss_mib", "a backlog"),
            ("open_rss_mib", "a transaction open for the whole of a dump"),
            ("rss_mib", "the worst of all"),
        )
    },
    "random_histories": {
        "violations": Figure("random histories that did not end as the source did", most=0),
        "seconds": Figure("all of them"),
    },
    "chaos": {
        "violations": Figure("promises that half an hour of kills and the like broke", most=0),
        "least_bites": Figure("bites of the kind of fault that bit least", least=5),
        "faults": Figure("bites of all faults"),
        "duplicates_per_million": Figure("deliveries that came again, of a million"),
    },
    "apply": {
        "uniform_10k_vs_merge_vectors": Figure(
            f"10,000 changes over the whole table, {_FASTER}", least=7
        ),
        "uniform_100k_vs_merge_vectors": Figure(f"100,000 changes likewise, {_FASTER}", least=7),
        "newest_10k_vs_merge_vectors": Figure(
            f"10,000 changes of the newest 5 %, {_FASTER}", least=5
        ),
        "newest_100k_vs_merge_vectors": Figure(f"100,000 changes likewise, {_FASTER}", least=5),
        "uniform_10k_vs_plain": Figure(
            "10,000 changes over the whole table, theirs without vectors over ours, s", least=14
        ),
        "uniform_100k_vs_plain": Figure("100,000 changes likewise", least=14),
        **{
            f"{spread}_{size}_vs_{peer}": Figure(f"{what}, {whose}")
            for spread, where in (
                ("uniform", "over the whole table"),
                ("newest", "of the newest 5 %"),
            )
            for size, what in (
                ("10k", f"10,000 changes {where}"),
                ("100k", f"100,000 changes {where}"),
            )
            for peer, whose in (
                ("delta_rs", "delta-rs over ours, s"),
                ("duckdb", "DuckDB over ours, s"),
            )
        },
        "rows_per_s_1m": Figure("changes per second, batches of 1,000,000", least=400_000),
    },
    "apply_memory": {
        f"{size}_{part}_mib": Figure(
            f"anonymous resident peak of {whose}, a batch of {changes}, MiB"
        )
        for size, changes in (
            ("none", "no change"),
            ("10k", "10,000 changes"),
            ("100k", "100,000 changes"),
            ("1m", "1,000,000 changes"),
        )
        for part, whose in (("python", "driver and Python workers"), ("java", "Java"))
    },
    "growth": {
        f"{spread}_{size}_{rows}_{figure}": Figure(
            f"{changes} changes {where}, {table} rows: {what}"
        )
        for spread, where in (("uniform", "over the whole table"), ("newest", "of the newest 5 %"))
        for size, changes in (("10k", "10,000"), ("100k", "100,000"))
        for rows, table in (("2m_rows", "2 M"), ("10m_rows", "10 M"), ("100m_rows", "100 M"))
        for figure, what in (
            ("s", "seconds of a batch"),
            ("vs_merge_vectors", _FASTER),
            ("probe_share", "share of the probe in them"),
        )
    }
    | {
        f"{spread}_{size}_probe_is_half_at_rows": Figure(
            f"rows of a table in which the probe of {changes} changes {where} takes half of a batch"
        )
        for spread, where in (("uniform", "over the whole table"), ("newest", "of the newest 5 %"))
        for size, changes in (("10k", "10,000"), ("100k", "100,000"))
    },
    "day": {
        f"{name}_late_vs_early": Figure(f"{what}, last fifth of the day over the second", most=1.25)
        for scenario in ("uniform", "newest")
        for name, what in (
            (f"{scenario}_files", "files of the table"),
            (f"{scenario}_bytes_per_row", "bytes of the table for each row that counts"),
            (f"{scenario}_batch_s", "seconds of a batch, median, maintenance included"),
        )
    }
    | {
        f"{scenario}_batch_p99_s": Figure(
            "slowest hundredth of the last fifth's batches, maintenance included, s"
        )
        for scenario in ("uniform", "newest")
    },
    "backlog": {
        "changes_per_s": Figure(
            "changes of a waiting change log into ten Delta tables, per second", least=300_000
        ),
    },
    "chain": {
        "changes_per_s": Figure(
            "a backlog of ten tables, from PostgreSQL's log to Delta tables, all on one machine",
            least=100_000,
        ),
        "p50_s": Figure("source commit to visible in the Delta table, ten tables, s", most=2.0),
        "p99_s": Figure("the same, 99th percentile", most=5.0),
        "transactions_per_s": Figure("transactions a second of that load"),
    }
    | {
        f"{part}_{whose}_cpu_s": Figure(f"CPU seconds of {who} during {what}")
        for part, what in (("backlog", "a backlog"), ("steady", "the steady load"))
        for whose, who in (
            ("server", "PostgreSQL"),
            ("capture", "the capture"),
            ("driver", "the apply job's driver"),
            ("java", "its Java"),
            ("workers", "its Python workers"),
        )
    },
    "relay": {
        f"{since}{share}_ms_{count}x{rate}": Figure(
            f"{what}, {count} consumers, {rate:,} events/s: {of}",
            most=_RELAY_GOALS.get((since + share, count, rate)),
        )
        for since, what in (
            ("", "commit to callback, the log's sync included"),
            ("readable_", "readable to callback"),
        )
        for share, of in (("p50", "median, ms"), ("p99", "99th percentile, ms"))
        for count in (1, 4, 10, 40, 100, 200)
        for rate in (100, 500, 1000, 2000)
    }
    | {
        "idle_consumers": Figure(
            "consumers for whom nothing comes, held by one process", least=2000
        ),
        "idle_kib_each": Figure("memory of the relay for each of them, KiB"),
        "thousand_logs_mib": Figure("memory of a relay of 1,000 change logs, each read once, MiB"),
        "thousand_logs_files": Figure("files that it holds open then"),
    },
    "beside": {
        "capture_beside_consumers": Figure(
            "what is left of a capture's rows/s beside ten busy consumers and their relay"
        ),
        "capture_beside_burners": Figure(
            "the same beside eleven processes that only use the same time of the processor"
        ),
        "capture_consumers_vs_burners": Figure("the first over the second", least=0.9),
        "capture_beside_sockets": Figure(
            "the same beside ten takers of the same bytes by bare sockets, and their giver"
        ),
        "capture_beside_socket_burners": Figure(
            "the same beside eleven processes that only use the same time as those"
        ),
        "capture_sockets_vs_burners": Figure(
            "the first over the second: what moving bytes costs a capture, whoever moves them"
        ),
    },
    "sender": {
        **{
            f"{load}_vs_pg_recvlogical": Figure(f"{title}, {_OURS}", least=1.0)
            for load, title in _SENT
        },
        **{
            f"{load}_bare_vs_pg_recvlogical": Figure(
                f"{title}, a client that only keeps bytes over theirs, rows/s"
            )
            for load, title in _SENT
        },
        **{
            f"{load}_sender_{share}{label}": Figure(
                f"{title}, the server's sending process {does}{beside}"
            )
            for load, title in _SENT
            for share, does in (
                ("runs", "runs: share of its time"),
                ("ready", "is ready and others run: share of its time"),
                ("waits", "waits: share of its time"),
            )
            for label, beside in (
                ("", ""),
                ("_pg_recvlogical", ", beside pg_recvlogical"),
                ("_bare", ", beside a client that only keeps bytes"),
            )
        },
    },
    "fanout": {
        figure: Figure(f"{what}, {count} consumers of a log that is there")
        for count in (1, 2, 5, 10)
        for figure, what in (
            (f"mb_per_s_{count}", "MB/s in all"),
            (f"vs_arrow_flight_{count}", "ours over Arrow Flight's, MB/s"),
            (f"vs_bare_sockets_{count}", "ours over what sockets alone pass on, MB/s"),
        )
    }
    | {
        "mb_per_s_total": Figure("the best of them, MB/s", least=2000),
        "total_vs_arrow_flight": Figure("the worst of them", least=1.5),
        "relay_cpu_s_per_gb": Figure("CPU seconds of the relay for each GB that it sends"),
        "filtered_bytes_less": Figure(
            "bytes to a consumer of everything over those to one of a fortieth"
        ),
    },
    "freshness": {
        "delta_p50_s": Figure("source commit to visible in the Delta table, s"),
        "delta_p99_s": Figure("the same, 99th percentile"),
        "live_p99_ms": Figure("source commit to visible in the live view, ms"),
    },
}
"""By result and name."""


def figure(result: str, name: str) -> Figure:
    """Return what is known of a figure; a ratio to somebody else is lost below 1, whatever its goal."""
    return FIGURES.get(result, {}).get(name) or Figure("")
