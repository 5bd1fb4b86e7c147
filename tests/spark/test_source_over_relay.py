"""A relay as a Spark source: the rows and offsets of the folder that it serves, and named errors when it cannot."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.changelog import ChangeLogSettings
from headrace.client.http import HttpSettings
from headrace.client.ranges import Ranges
from headrace.client.relays import Backoff
from headrace.client.settings import Settings
from headrace.errors import (
    BadFilter,
    ConfigError,
    NotAllowed,
    NotServed,
    RelayUnavailable,
    ScnNotFound,
)
from headrace.model.block import Block
from headrace.model.schema import TableId
from headrace.relay.server.settings import Role, Token
from headrace.spark.failures import known
from headrace.spark.options import SourceOptions
from headrace.spark.source import HeadraceSource, register_source
from headrace.testing.histories import PATCHY, TABLES
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.testing.ports import free_port
from headrace.testing.relay import served
from headrace.wire.place import Place
from tests.certificates import self_signed
from tests.changelog.windows import window
from tests.client.logs import LogFolder, random_blocks
from tests.client.test_relays import whole
from tests.requirements import req

pytestmark = pytest.mark.spark

SECRET = "t0ken-of-nobody-else"
READER = Token("spark", SECRET, Role.READER)
FILTERS: tuple[dict[str, Any], ...] = (
    {"partition": {"by": "hash", "count": 3, "take": [0, 2]}},
    {"columns": {"public.patchy": ["c1"]}},
    {"where": {"public.patchy": "k > 4"}, "columns": {"public.patchy": ["c2"]}},
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LogFolder]:
    log = LogFolder(tmp_path / "shop")
    log.register(*TABLES)
    yield log
    log.close()


@pytest.fixture
def url(shop: LogFolder) -> Iterator[str]:
    with served({"shop": shop.folder}) as at:
        yield at


def of_relay(*urls: str, **options: Any) -> HeadraceSource:
    given = {name: str(value) for name, value in options.items()}
    said = {"relay": ",".join(urls), "source": "shop", "patience_s": "20", **given}
    return HeadraceSource(said)


def of_folder(log: LogFolder, **options: Any) -> HeadraceSource:
    return HeadraceSource({"path": str(log.folder)} | {n: str(v) for n, v in options.items()})


def parts_of(source: HeadraceSource) -> list[Any]:
    """Return the rows of each partition, in its columns."""
    source.schema()
    reader: Any = source.reader(None)  # type: ignore[arg-type]
    return [
        [row for batch in reader.read(part) for row in batch.to_pylist()]
        for part in reader.partitions()
    ]


def rows_of(source: HeadraceSource) -> list[dict[str, Any]]:
    return [row for part in parts_of(source) for row in part]


def ends_of(source: HeadraceSource, rows: int) -> list[int]:
    """Return where the micro-batches of a stream end."""
    reader: Any = source.streamReader(None)  # type: ignore[arg-type]
    ends = [reader.initialOffset()["scn"]]
    while (end := reader.latestOffset({"scn": ends[-1]}, ReadMaxRows(rows))["scn"]) > ends[-1]:
        ends.append(end)
    reader.stop()
    return ends


@req("D42")
@pytest.mark.parametrize("seed", range(4))
def test_any_range_in_any_slices_gives_the_rows_of_the_folder(shop, url, seed):
    rng = random.Random(seed)
    shop.append(*random_blocks(seed + 200))
    end = shop.blocks[-1].covered_scn
    filled = 0
    for schema in TABLES:
        for filter_ in (None, *(FILTERS if schema is PATCHY else FILTERS[:1])):
            begin, to = sorted(rng.sample(range(end + 1), 2))
            asked: dict[str, Any] = {"table": schema.table, "from_scn": begin, "to_scn": to}
            asked |= {"slices": rng.randrange(1, 6)}
            asked |= {} if filter_ is None else {"filter": json.dumps(filter_)}
            here, there = of_folder(shop, **asked), of_relay(url, **asked)
            try:
                rows = rows_of(here)
            except ConfigError as error:
                # Nothing in the range says anything of the table.
                with pytest.raises(ConfigError, match=re.escape(error.message)):
                    there.schema()
                continue
            assert here.schema() == there.schema()
            assert rows_of(there) == rows
            if filter_ is None:
                assert places(rows) == [p for p in stored(shop, schema.table) if begin < p[0] <= to]
            filled += bool(rows)
    assert filled > 3
    everything = {"table": PATCHY.table, "slices": 4}
    assert len(parts_of(of_relay(url, **everything))) == 4
    rows = rows_of(of_relay(url, **everything))
    assert rows == rows_of(of_folder(shop, **everything))
    assert places(rows) == stored(shop, PATCHY.table)
    assert len(rows) > 20


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["_scn"], row["_ord"]) for row in rows]


def stored(log: LogFolder, table: TableId) -> list[tuple[int, int]]:
    """Return where a log has rows of a table."""
    bodies = [body for block in log.blocks for body in block.bodies if body.table == table]
    return [place for body in bodies for place in places(body.batch.to_pylist())]


@req("C56", "C57", "T14")
@pytest.mark.parametrize("seed", range(3))
def test_micro_batches_end_between_transactions_and_hold_one_block_or_what_they_may(
    shop, url, seed
):
    blocks = random_blocks(seed + 300)
    # Of a transaction in pieces a relay tells the whole; a folder's blocks may begin with its last piece.
    shop.append(*whole(blocks))
    table: dict[str, Any] = {"table": PATCHY.table}
    cuts = [block.covered_scn for block in whole(blocks)]
    places = [row["_scn"] for row in rows_of(of_folder(shop, **table))]
    for most in (1, 7, 50, 10_000):
        ends = ends_of(of_relay(url, **table), most)
        assert ends[-1] == blocks[-1].covered_scn
        for after, upto in itertools.pairwise(ends):
            scns = [scn for scn in places if after < scn <= upto]
            assert len(scns) <= most or len({bisect_left(cuts, scn) for scn in scns}) == 1
    assert len(ends_of(of_relay(url, **table), 7)) > 5


def test_bytes_limit_a_micro_batch_too(shop, url):
    shop.append(*whole(random_blocks(4)))
    of_table: dict[str, Any] = {"table": PATCHY.table}
    reader: Any = of_relay(url, max_bytes=1, **of_table).streamReader(None)  # type: ignore[arg-type]
    first = shop.blocks[0].last_scn
    assert reader.latestOffset({"scn": 0}, ReadMaxRows(10**6)) == {"scn": first}
    newest = {"scn": shop.blocks[-1].covered_scn}
    assert reader.latestOffset({"scn": 0}, ReadAllAvailable()) == newest
    assert reader.reportLatestOffset() == newest
    reader.stop()


@req("D48", "B-6")
@pytest.mark.parametrize("seed", range(3))
def test_a_task_goes_on_at_another_relay_inside_a_transaction(shop, url, tmp_path, seed):
    blocks = random_blocks(seed + 60)
    shop.append(*blocks)
    other = LogFolder(tmp_path / "other")
    other.register(*TABLES)
    # The other relay has the same transactions in other blocks.
    other.append(*whole(blocks))
    rng = random.Random(seed)
    asked = {"table": PATCHY.table, "slices": 2}
    wanted = rows_of(of_folder(shop, **asked))
    with (
        served({"shop": other.folder}) as second,
        FaultyLine(url) as one,
        FaultyLine(second) as two,
    ):
        for line in (one, two):
            line.rule = lambda n: Damage(cut_at=rng.randrange(300, 3_000)) if n < 40 else SOUND
        assert rows_of(of_relay(one.url, two.url, **asked)) == wanted
        assert min(one.connections, two.connections) > 3
    other.close()


def test_a_place_before_the_first_change_of_a_transaction_is_behind_the_one_before():
    assert str(Place(5, -1)) == "4"
    assert (str(Place(5, 0)), str(Place(5))) == ("5:0", "5")


def test_a_relay_that_ends_in_mid_batch_and_comes_back_costs_nothing(shop):
    shop.append(*wide_blocks())
    with ExitStack() as first:
        # One that the system gives to no connection while the relay is away, not even to ours.
        port = free_port()
        url = first.enter_context(served({"shop": shop.folder}, port=port))
        ranges = Ranges([url], "shop", quick(patience_s=30.0))
        blocks = ranges.blocks(0, 40)
        taken = [next(blocks)]
        first.close()
        with pytest.raises(RelayUnavailable):
            Ranges([url], "shop", quick(patience_s=0.2)).reach()
        back = threading.Event()

        def again() -> None:
            with served({"shop": shop.folder}, port=port):
                back.wait(60)

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        try:
            taken += list(blocks)
        finally:
            back.set()
            thread.join(60)
    scns = [int(scn) for block in taken for scn in block.index["scn"]]
    assert scns == list(range(1, 41))


def test_a_relay_that_stays_away_ends_a_task_with_its_name(shop):
    shop.append(*wide_blocks())
    with ExitStack() as serving:
        url = serving.enter_context(served({"shop": shop.folder}))
        with FaultyLine(url) as line:
            line.rule = lambda n: Damage(cut_at=60_000)
            blocks = Ranges([line.url], "shop", quick(patience_s=0.5)).blocks(0, 40)
            next(blocks)
            serving.close()
            with pytest.raises(RelayUnavailable, match=line.url):
                list(blocks)


def test_a_relay_that_is_behind_is_waited_for_and_then_named(shop, url, tmp_path):
    shop.append(*whole(random_blocks(5)))
    end = shop.blocks[-1].covered_scn
    ranges = Ranges([url], "shop", quick(patience_s=0.5))
    with pytest.raises(RelayUnavailable, match=f"SCN {end}"):
        list(ranges.outline(0, end + 10))
    with pytest.raises(RelayUnavailable, match=f"SCN {end}"):
        list(ranges.blocks(0, end + 10))
    ranges.close()
    # One that has more is asked when another one has not.
    less = LogFolder(tmp_path / "less")
    less.register(*TABLES)
    less.append(*shop.blocks[:10])
    with served({"shop": less.folder}) as behind:
        both = Ranges([behind, url], "shop", quick(patience_s=20.0))
        found = [extent.last_scn for extent in both.outline(0, end)]
        assert found == [block.last_scn for block in shop.blocks if len(block.index)]
        both.close()
    less.close()


@pytest.mark.parametrize("token", ["", "another"])
def test_a_token_that_is_not_known_is_named_and_not_shown(shop, token):
    shop.append(*random_blocks(6))
    with served({"shop": shop.folder}, tokens=(READER,)) as url:
        said = {"token": token} if token else {}
        with pytest.raises(NotAllowed) as raised:
            of_relay(url, table=PATCHY.table, **said).schema()
        assert not token or token not in str(raised.value)
        good = of_relay(url, table=PATCHY.table, token=SECRET)
        assert rows_of(good) == rows_of(of_folder(shop, table=PATCHY.table))
        assert SECRET not in repr(SourceOptions.parse(good.options))


def test_certificates_of_an_authority_of_ones_own_are_believed_by_driver_and_tasks(shop, tmp_path):
    shop.append(*random_blocks(9))
    known, other = self_signed(tmp_path / "known"), self_signed(tmp_path / "other")
    tls: dict[str, Any] = {"certificate": known.certificate, "key": known.key}
    asked = {"table": PATCHY.table, "slices": 3}
    with served({"shop": shop.folder}, tokens=(READER,), **tls) as url:
        assert url.startswith("https://")
        for ca in ({}, {"ca": other.certificate}):
            with pytest.raises(RelayUnavailable, match="certificate is not believed"):
                of_relay(url, token=SECRET, patience_s=0.2, **asked, **ca).schema()
        source = of_relay(url, token=SECRET, ca=known.certificate, **asked)
        source.schema()
        reader: Any = source.reader(None)  # type: ignore[arg-type]
        parts = reader.partitions()
        # What goes to the tasks is all that they need.
        known.certificate.unlink()
        there = pickle.loads(pickle.dumps(reader))
        rows = [row for part in parts for batch in there.read(part) for row in batch.to_pylist()]
        assert rows == rows_of(of_folder(shop, table=PATCHY.table, slices=3))
        assert "CERTIFICATE" not in repr(there._options)


def test_a_source_that_no_relay_has_is_named(url):
    with pytest.raises(NotServed, match="nobody"):
        of_relay(url, source="nobody", table=PATCHY.table).schema()


def test_a_place_that_was_dropped_is_named_with_what_there_is(tmp_path):
    small = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)
    log = LogFolder(tmp_path / "log", small)
    log.register(*TABLES)
    log.append(*random_blocks(7))
    log.writer.retain()
    with served({"shop": log.folder}) as url:
        source = of_relay(url, table=PATCHY.table)
        # The columns are known even so: a stream may go on from its checkpoint.
        source.schema()
        with pytest.raises(ScnNotFound) as raised:
            source.reader(None).partitions()  # type: ignore[arg-type]
        assert (raised.value.scn, raised.value.oldest > 0) == (0, True)
        stream: Any = source.streamReader(None)  # type: ignore[arg-type]
        with pytest.raises(ScnNotFound):
            stream.latestOffset({"scn": 0}, ReadMaxRows(10))
        stream.stop()
    log.close()


def test_options_that_do_not_go_together_are_named(tmp_path, url):
    path = {"path": str(tmp_path)}
    for options, what in (
        ({}, "neither option path nor relay"),
        (path | {"relay": url}, "both options path and relay"),
        (path | {"token": "x"}, "token"),
        (path | {"ca": "x"}, "ca"),
        ({"relay": url, "source": "shop", "ca": str(tmp_path / "none")}, "ca: .*FileNotFound"),
        ({"relay": url, "source": "shop", "ca": __file__}, "ca: .*SSLError"),
        ({"relay": url}, "source"),
        ({"relay": " , ", "source": "shop"}, "address"),
        ({"relay": url, "source": "shop", "patience_s": "long"}, "number"),
        (path, "table"),
        (path | {"filter": "k > 1", "table": "public.patchy"}, "filter"),
        (path | {"filter": '{"tables": []}', "table": "public.patchy"}, "filter"),
    ):
        with pytest.raises(ConfigError, match=what):
            HeadraceSource(options).schema()
    other = json.dumps({"where": {"public.bag": "k > 1"}})
    with pytest.raises(BadFilter, match=r"public\.bag"):
        of_relay(url, table="public.patchy", filter=other).schema()
    with pytest.raises(ConfigError, match="relay"):
        of_relay("ftp://nowhere", table="public.patchy").schema()


@req("N30")
def test_spark_reads_a_relay_in_batches_and_streams(spark: SparkSession, shop, tmp_path):
    shop.append(*whole(random_blocks(8)))
    register_source(spark)
    pair = self_signed(tmp_path / "certificates")
    tls: dict[str, Any] = {"certificate": pair.certificate, "key": pair.key}
    with served({"shop": shop.folder}, tokens=(READER,), **tls) as url:
        options = {"relay": url, "source": "shop", "token": SECRET, "table": str(PATCHY.table)}
        options |= {"ca": str(pair.certificate)}
        frame = spark.read.format("headrace").options(**options, slices="3").load()
        assert frame.rdd.getNumPartitions() == 3
        wanted = rows_of(of_folder(shop, table=PATCHY.table))
        found = sorted(frame.toArrow().to_pylist(), key=lambda row: (row["_scn"], row["_ord"]))
        assert found == wanted
        plan = frame._sc._jvm.PythonSQLUtils.explainString(  # type: ignore[union-attr]
            frame._jdf.queryExecution(), "extended"
        )
        assert SECRET not in plan
        taken: list[dict[str, Any]] = []

        def take(batch: DataFrame, _batch_id: int) -> None:
            taken.extend(batch.toArrow().to_pylist())

        def stream(**more: str) -> Any:
            reading = spark.readStream.format("headrace").options(**{**options, **more}).load()
            return (
                reading.writeStream.foreachBatch(take)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )

        query = stream(max_rows="40")
        assert query.awaitTermination(300)
        batches = len([one for one in query.recentProgress if one["numInputRows"]])
        assert batches > 1
        key = lambda row: (row["_scn"], row["_ord"])  # noqa: E731 - said once
        assert sorted(taken, key=key) == wanted
        with pytest.raises(Exception, match="NotAllowed") as raised:
            stream(token="wrong").awaitTermination(300)
        assert isinstance(known(raised.value), NotAllowed)
        assert SECRET not in str(raised.value)


def wide_blocks() -> list[Block]:
    """Return forty transactions of some tens of KiB."""
    return [window(scn, 20, text="x" * 1000) for scn in range(1, 41)]


def quick(**settings: Any) -> Settings:
    """Return settings with which a reader holds little and asks again soon."""
    return Settings(
        buffer_bytes=100_000,
        pull_bytes=100_000,
        pull_wait_ms=50,
        reconnect=Backoff(0.01, 1.2, 0.05),
        http=HttpSettings(read_timeout_s=10.0),
        **settings,
    )
