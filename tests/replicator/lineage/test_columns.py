"""Column lineage through select, drop, rename, mask, compute, where and modes; and what tables are called elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.replicator.assess.document import configured, read_document
from headrace.replicator.config import Config
from headrace.replicator.lineage.columns import How, TableLineage, table_lineage
from headrace.replicator.lineage.datasets import Dataset, source_dataset, target_dataset
from headrace.replicator.lineage.events import EventType, RunOf, event
from tests.replicator.lineage.openlineage import faults_of
from tests.requirements import req

TABLE = TableId("shop", "people")


def schema_of(*names: str) -> TableSchema:
    columns = (Column(name, pa.string(), "text") for name in names)
    return TableSchema(
        TABLE, (Column("id", pa.int32(), "integer", False), *columns), ("id",), KeyCheck.IMMEDIATE
    )


PEOPLE = schema_of("first", "last", "email", "Notes")


def made(lineage: TableLineage) -> dict[str, tuple[How, tuple[str, ...]]]:
    return {one.column: (one.how, one.inputs) for one in lineage.columns}


def config_of(**sections: object) -> Config:
    document = {
        "name": "shop",
        "source": {
            "type": "postgres",
            "url": "postgresql://reader:swordfish@db.internal:6432/crm",
            "tables": ["shop.*"],
        },
        "target": {"type": "delta", "path": "/lake"},
        **sections,
    }
    return configured(read_document(document, Path("/")))


@req("C23")
def test_a_mirror_has_every_column_as_it_is() -> None:
    lineage = table_lineage(PEOPLE, TableSettings())
    assert made(lineage) == {name: (How.IDENTITY, (name,)) for name in PEOPLE.names}
    assert [one.type for one in lineage.columns] == ["int32", *["string"] * 4]
    assert lineage.filters == ()


@req("C23", "C109")
def test_transformations_are_followed_from_column_to_column() -> None:
    settings = TableSettings(
        drop=("Notes",),
        rename=(("last", "surname"),),
        mask=(("email", "sha2(email || 'salt', 256)"), ("first", "'x'")),
        compute=(
            ("full_name", "concat_ws(' ', first, LAST)"),
            ("one", "1"),
            ("length", "length(`notes`)"),
        ),
        where="email is not null and id > 0",
    )
    lineage = table_lineage(PEOPLE, settings)
    assert made(lineage) == {
        "id": (How.IDENTITY, ("id",)),
        # What masks it names no column; it stands in the place of one all the same.
        "first": (How.MASKED, ("first",)),
        "surname": (How.IDENTITY, ("last",)),
        "email": (How.MASKED, ("email",)),
        "full_name": (How.COMPUTED, ("first", "last")),
        "one": (How.COMPUTED, ()),
        "length": (How.COMPUTED, ("Notes",)),
    }
    assert lineage.filters == ("id", "email")
    assert {one.type for one in lineage.columns if one.how is not How.IDENTITY} == {""}


@req("C23")
def test_an_expression_that_only_spark_reads_names_too_much_rather_than_too_little() -> None:
    settings = TableSettings(compute=(("odd", "first > > last"),))
    assert made(table_lineage(PEOPLE, settings))["odd"] == (How.COMPUTED, ("first", "last"))


@req("C23")
def test_a_text_that_looks_like_a_column_is_none() -> None:
    settings = TableSettings(compute=(("greeting", "concat('last ', first)"),))
    assert made(table_lineage(PEOPLE, settings))["greeting"] == (How.COMPUTED, ("first",))


@req("C23")
@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.MIRROR])
def test_columns_that_a_mode_adds_come_from_no_column(mode: Mode) -> None:
    lineage = table_lineage(PEOPLE, TableSettings(mode))
    added = {name for name, (how, inputs) in made(lineage).items() if how is How.ADDED}
    assert added
    assert added.isdisjoint(PEOPLE.names)
    told = event(EventType.START, RUN, config_of(), [lineage], at_s=0)
    fields = told["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert set(fields) == set(PEOPLE.names)
    assert {one["name"] for one in told["outputs"][0]["facets"]["schema"]["fields"]} > added


RUN = RunOf("headrace", "shop", "0b8e1f6a-8d6c-4c39-9df8-6b4b9ac1d3a7")


@req("C23", "C73")
def test_events_are_openlineages_and_hold_no_secret() -> None:
    settings = TableSettings(
        mask=(("email", "sha2(email || 'salt-of-the-earth', 256)"),), where="last <> 'x'"
    )
    lineage = table_lineage(PEOPLE, settings)
    told = [
        event(kind, RUN, config_of(), [lineage], at_s=1_700_000_000.5, error=error)
        for kind in EventType
        for error in (None, RuntimeError("swordfish"))
    ]
    for one in told:
        assert faults_of(one) == []
    text = json.dumps(told)
    assert "swordfish" not in text
    assert "salt-of-the-earth" not in text
    assert "reader" not in text
    output = told[0]["outputs"][0]
    assert (output["namespace"], output["name"]) == ("file", "/lake/shop/people")
    (masked,) = output["facets"]["columnLineage"]["fields"]["email"]["inputFields"]
    assert masked == {
        "namespace": "postgres://db.internal:6432",
        "name": "crm.shop.people",
        "field": "email",
        "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}],
    }
    (filtered,) = output["facets"]["columnLineage"]["dataset"]
    assert filtered["field"] == "last"
    assert filtered["transformations"][0]["type"] == "INDIRECT"


@req("C73")
def test_an_event_with_a_fault_is_found() -> None:
    good = event(
        EventType.START, RUN, config_of(), [table_lineage(PEOPLE, TableSettings())], at_s=0
    )
    for place, value in (("eventType", "BEGIN"), ("eventTime", "yesterday"), ("strange", 1)):
        assert faults_of({**good, place: value})
    for place in ("eventTime", "run", "job", "producer", "schemaURL"):
        assert faults_of({name: held for name, held in good.items() if name != place})


@req("C23")
@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://db.internal/crm", Dataset("postgres://db.internal:5432", "crm.shop.people")),
        (
            "postgresql://u:p%40@[::1]:6432/a%2Fb",
            Dataset("postgres://[::1]:6432", "a/b.shop.people"),
        ),
        ("postgresql://a:1,b:2/crm", Dataset("postgres://a:1", "crm.shop.people")),
        (
            "postgresql:///crm?host=/run/x&port=7",
            Dataset("postgres://localhost:7", "crm.shop.people"),
        ),
        ("postgresql://u@/crm?host=db", Dataset("postgres://db:5432", "crm.shop.people")),
    ],
)
def test_tables_of_postgresql_have_the_names_that_other_tools_give_them(
    url: str, found: Dataset
) -> None:
    config = config_of(source={"type": "postgres", "url": url, "tables": ["shop.*"]})
    assert source_dataset(config, TABLE) == found


@req("C23")
def test_targets_have_the_names_that_other_tools_give_them() -> None:
    for target, found in (
        ({"type": "parquet", "path": "/files"}, Dataset("file", "/files/shop/people")),
        (
            {"type": "delta", "path": "s3://tables/lake/"},
            Dataset("s3://tables", "lake/shop/people"),
        ),
        ({"type": "delta", "path": "s3://tables"}, Dataset("s3://tables", "shop/people")),
        ({"type": "duckdb", "path": "/w.duckdb"}, Dataset("duckdb:///w.duckdb", "shop.people")),
        (
            {"type": "postgres", "url": "postgresql://u:p@w:1/dw", "schema_prefix": "copy_"},
            Dataset("postgres://w:1", "dw.copy_shop.people"),
        ),
    ):
        assert target_dataset(config_of(target=target), TABLE) == found
    relay = {"type": "relay", "urls": ["http://relay:7070"]}
    config = config_of(source=relay)
    assert source_dataset(config, TABLE) == Dataset("headrace://relay:7070", "shop.people")
