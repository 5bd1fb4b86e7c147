"""Every line that leaves us fits the schema that stands beside the protocol, and its names come in one order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Subscription
from headrace.model.block import SystemKind
from headrace.outputs import NdjsonOutput
from headrace.testing.histories import TABLES
from headrace.testing.relay import served
from tests.changelog.windows import TABLE, coverage, window
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder, random_blocks
from tests.observe.json_schema import faults
from tests.relay.server.asking import ask
from tests.requirements import req

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "lines.schema.json").read_text(encoding="utf-8")
)
KINDS = {kind["title"]: list(kind["properties"]) for kind in SCHEMA["oneOf"]}


def kind_of(line: str) -> str:
    """Return the kind of a line that fits the schema and has its names in order."""
    said = json.loads(line)
    assert faults(said, SCHEMA) == [], line
    (kind,) = (one["title"] for one in SCHEMA["oneOf"] if not faults(said, one))
    assert list(said) == [name for name in KINDS[kind] if name in said], line
    return str(kind)


def lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


@req("H15")
@pytest.mark.parametrize("seed", range(3))
def test_lines_of_the_relay_and_of_the_output_fit_the_schema(tmp_path: Path, seed: int) -> None:
    log = LogFolder(tmp_path / "log")
    log.register(*TABLES, TABLE)
    log.append(*random_blocks(seed + 40))
    end = log.blocks[-1].covered_scn + 1
    log.append(window(end, truncate=True))
    log.append(coverage(end + 5))
    written = []
    with served({"shop": log.folder}) as url:
        pulled: dict[str, Any] = {
            "source": "shop",
            "mode": "pull",
            "format": "ndjson",
            "after": "oldest",
        }
        answers = [ask(url, "/stream", **pulled).body for _ in range(2)]
        for name in ("one", "other"):
            output = NdjsonOutput(tmp_path / name)
            Subscription(url, "shop", output, upto=end, settings=QUICK).run()
            written.append((tmp_path / name).read_bytes())
        refused = ask(url, "/stream", post={**pulled, "filter": {"where": {"public.bag": "x > 1"}}})
    log.close()
    # The same changes are the same bytes.
    assert answers[0] == answers[1]
    assert written[0] == written[1]
    told = Counter(map(kind_of, lines(answers[0])))
    kept = Counter(map(kind_of, lines(written[0])))
    assert set(told) == {"change", "event", "end", "coverage", "note"}
    assert set(kept) == {"change", "event", "end"}
    assert told["end"] == kept["end"] > 20
    assert told["event"] == kept["event"]
    assert {"before", "missing"} <= {
        name for line in lines(written[0]) for name in json.loads(line)
    }
    # Behind what lies before the table that has no such column.
    *before, last = lines(refused.body)
    assert before == lines(answers[0])[: len(before)]
    assert kind_of(last) == "error"


def test_every_kind_of_event_is_known_to_the_schema() -> None:
    (event,) = (one for one in SCHEMA["oneOf"] if one["title"] == "event")
    assert event["properties"]["event"]["enum"] == [kind.value for kind in SystemKind]


@pytest.mark.parametrize(
    "line",
    [
        {"scn": 1, "ord": 0, "op": "+I", "table": "a.b"},
        {"scn": 1, "ord": 0, "op": "insert", "table": "a.b", "row": {}},
        {"scn": "1", "ord": 0, "op": "+I", "table": "a.b", "row": {}},
        {"scn": 1, "ord": 0, "op": "+I", "table": "a.b", "row": {}, "more": 1},
        {"scn": 1, "end": False, "commit_us": 1, "origin": "log"},
        {"note": "bye"},
        {},
    ],
)
def test_what_is_no_line_does_not_fit(line: dict[str, Any]) -> None:
    assert faults(line, SCHEMA)
