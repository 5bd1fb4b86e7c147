"""docs/configuration.md is the configuration: same keys, same defaults, same bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import annotated_types
import pytest
import yaml
from pydantic import BaseModel

from headrace.replicator.config import (
    Config,
    LineageConfig,
    MaintenanceConfig,
    MetricsConfig,
    ObjectiveConfig,
    RelayConfig,
    StoreConfig,
    TableConfig,
)
from headrace.replicator.observe_config import DropConfig
from headrace.replicator.relay_config import UpstreamConfig
from headrace.replicator.units import Bytes, parse_size

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
SECTIONS: dict[str, type[BaseModel]] = {"The file": Config} | {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
SECTIONS |= {
    f"target of type {get_args(model.model_fields['type'].annotation)[0]}": model
    for model in get_args(Config.model_fields["target"].annotation)
}
SECTIONS["source"] = get_args(Config.model_fields["source"].annotation)[0]
SECTIONS |= {
    f"source of type {get_args(model.model_fields['type'].annotation)[0]}": model
    for model in get_args(Config.model_fields["source"].annotation)[1:]
}
SECTIONS["tables"] = TableConfig
SECTIONS["relay"] = RelayConfig
SECTIONS["relay.upstream"] = UpstreamConfig
SECTIONS["metrics"] = MetricsConfig
SECTIONS["objective"] = ObjectiveConfig
SECTIONS["activity.drop"] = DropConfig
SECTIONS["lineage"] = LineageConfig
SECTIONS["maintenance"] = MaintenanceConfig
SECTIONS["store"] = StoreConfig


def rows_of(section: str) -> dict[str, tuple[str, str]]:
    """Return default and meaning per key of one section of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", text, re.MULTILINE)
    return {key: (default.strip("`"), meaning) for key, default, meaning in rows}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_stands_on_the_page_and_no_other(section: str) -> None:
    assert list(rows_of(section)) == list(SECTIONS[section].model_fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_are_those_of_the_code(section: str) -> None:
    model = SECTIONS[section]
    for key, (written, _) in rows_of(section).items():
        field = model.model_fields[key]
        if field.is_required():
            assert written == "needed", key
            continue
        value = yaml.safe_load(written)
        default = field.get_default()
        if isinstance(default, BaseModel):
            assert type(default)(**value) == default, key
        elif get_args(Bytes)[1] in field.metadata:
            assert parse_size(value) == default, key
        else:
            plain = list(default) if isinstance(default, tuple) else default
            assert (value, type(value)) == (plain, type(plain)), key


@pytest.mark.parametrize("section", SECTIONS)
def test_bounds_are_those_of_the_code(section: str) -> None:
    for key, (_, meaning) in rows_of(section).items():
        for bound in SECTIONS[section].model_fields[key].metadata:
            for kind, name in (
                (annotated_types.Ge, "ge"),
                (annotated_types.Gt, "gt"),
                (annotated_types.Le, "le"),
            ):
                if isinstance(bound, kind):
                    number = getattr(bound, name)
                    shown = (f"{number:,}", f"{number // 1024} KiB", f"{number // 2**20} MiB")
                    assert any(re.search(rf"\b{text}\b", meaning) for text in shown), (key, shown)
