"""What a migration does to a target that has other columns than its source, told without doing it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.commit import put_commit
from headrace.lake.evolution import create_actions
from headrace.lake.modes import Mode, shaped
from headrace.lake.settings import TableSettings
from headrace.model.schema import Column, TableSchema
from headrace.replicator.replicas import DeltaReplicas
from headrace.replicator.schema_diff import schema_diff
from headrace.testing.notation import table_of

SOURCE = replace(table_of(4), numbers={"k": 1, "c1": 2, "c2": 3, "c3": 4})


def made(lake: Path, mode: Mode, settings: TableSettings, *own: str) -> None:
    """Create the target table, with columns of its own."""
    kept = settings.renamed(settings.alike(SOURCE))
    columns = (*kept.columns, *(Column(name, pa.string(), "") for name in own))
    target = shaped(replace(kept, columns=columns), mode)
    put_commit(lake / "public" / "t", 0, create_actions(target, vectors=True))


def changes(lake: Path, source: TableSchema, settings: TableSettings) -> list[dict[str, str]]:
    replicas = DeltaReplicas(lake, "test", (("public.*", settings),))
    (found,) = schema_diff([source], replicas, lambda _: ())
    listed: list[dict[str, str]] = found.to_json()["changes"]
    return listed


@pytest.mark.parametrize("mode", list(Mode))
def test_the_columns_that_a_mode_adds_are_no_difference(tmp_path: Path, mode: Mode) -> None:
    settings = TableSettings(mode)
    made(tmp_path, mode, settings)
    assert changes(tmp_path, SOURCE, settings) == []
    columns = (*SOURCE.columns[:2], replace(SOURCE.columns[2], name="label"), SOURCE.columns[3])
    later = replace(SOURCE, columns=columns, numbers={"k": 1, "c1": 2, "label": 3, "c3": 4})
    assert changes(tmp_path, later, settings) == [
        {"change": "rename", "column": "c2", "detail": "to label"}
    ]


def test_columns_that_the_target_lacks_or_makes_are_no_difference(tmp_path: Path) -> None:
    settings = TableSettings(
        Mode.HISTORY,
        drop=("c1",),
        rename=(("k", "id"), ("c2", "mail")),
        mask=(("c2", "sha2(c2, 256)"),),
        compute=(("loud", "upper(c3)"),),
    )
    made(tmp_path, Mode.HISTORY, settings, "mail", "loud")
    assert changes(tmp_path, SOURCE, settings) == []
    fewer = replace(SOURCE, columns=SOURCE.columns[:3], numbers={"k": 1, "c1": 2, "c2": 3})
    assert [(one["change"], one["column"]) for one in changes(tmp_path, fewer, settings)] == [
        ("drop", "c3")
    ]
