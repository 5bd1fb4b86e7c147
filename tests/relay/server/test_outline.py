"""The outline of a log: every transaction in one extent, none in two, whatever the blocks are like."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.changelog import ChangeLogReader
from tests.changelog.windows import OTHER, TABLE, coverage, joined, synced, window
from tests.relay.server.asking import ask
from tests.requirements import req


def told(url: str, **query: Any) -> Any:
    answer = ask(url, "/outline", source="shop", **query)
    assert answer.status == 200, answer.body
    return answer.json


def paged(url: str, upto: int, most: int) -> list[dict[str, Any]]:
    """Return the extents of a range, asked for ``most`` at a time."""
    found: list[dict[str, Any]] = []
    at = 0
    while at < upto:
        answer = told(url, after=at, upto=upto, most=most)
        assert len(answer["extents"]) <= most
        assert answer["upto_scn"] > at
        at = answer["upto_scn"]
        found += answer["extents"]
    return found


def test_a_stretch_tells_its_rows_its_bytes_and_its_tables(writer, folder, url):
    synced(writer, window(3, 2), coverage(4), window(6, 3, tables=(TABLE, OTHER), truncate=True))
    synced(writer, coverage(8))
    refs = list(ChangeLogReader(folder).refs(0))
    none, one, other = "0" * 16, f"{TABLE.schema_id:016x}", f"{OTHER.schema_id:016x}"
    sizes = [ref.bytes for ref in refs]
    assert told(url) == {
        "source": "shop",
        "oldest_scn": 0,
        "complete_scn": 6,
        "covered_scn": 8,
        "upto_scn": 8,
        "extents": [
            {"first_scn": 3, "last_scn": 3, "rows": 2, "bytes": sizes[0], "tables": {one: 2}},
            {
                "first_scn": 6,
                "last_scn": 6,
                "rows": 6,
                "bytes": sizes[1],
                "tables": {one: 3, other: 3, none: 1},
            },
        ],
    }
    assert told(url, after=3, upto=5) | {"source": ""} == {
        **told(url),
        "source": "",
        "upto_scn": 5,
        "extents": [],
    }


@req("T14")
@pytest.mark.parametrize("seed", range(4))
def test_every_transaction_is_in_one_stretch_however_the_answers_are_cut(writer, folder, url, seed):
    rng = random.Random(seed)
    scn = 0
    for _ in range(60):
        scn += rng.randrange(1, 4)
        if rng.random() < 0.2:
            synced(writer, coverage(scn))
            continue
        pieces = rng.choice([1, 1, 1, 2, 5])
        for number in range(pieces):
            synced(writer, window(scn, 2, first=2 * number, last=number == pieces - 1))
    writer.append(window(scn + 1, 1, last=False))
    writer.sync()
    refs = list(ChangeLogReader(folder).refs(0))
    whole = [ref.last_scn for ref in refs if ref.ends_complete]
    for most in (1, 3, 7, 4096):
        found = paged(url, scn, most)
        assert [(one["first_scn"], one["last_scn"]) for one in found] == [(at, at) for at in whole]
        assert sum(one["rows"] for one in found) == sum(ref.rows for ref in refs)
        assert sum(one["bytes"] for one in found) == sum(ref.bytes for ref in refs)
    begin, end = sorted(rng.sample(range(scn), 2))
    part = told(url, after=begin, upto=end)
    assert [one["last_scn"] for one in part["extents"]] == [at for at in whole if begin < at <= end]
    assert part["upto_scn"] == end


def test_a_block_that_ends_a_transaction_and_holds_others_is_one_stretch_with_its_beginning(
    writer, url
):
    ends = joined([window(2, 1, first=1), window(3)])
    synced(writer, window(1), window(2, 1, last=False), ends, window(4))

    def ranges(**query: Any) -> list[tuple[int, int]]:
        return [(one["first_scn"], one["last_scn"]) for one in told(url, **query)["extents"]]

    assert ranges() == [(1, 1), (2, 3), (4, 4)]
    assert ranges(upto=1) == [(1, 1)]
    assert ranges(after=2, upto=3) == ranges(after=1, upto=2) == [(2, 3)]


def test_what_cannot_be_told_is_named(writer, url):
    synced(writer, *(window(scn) for scn in range(1, 40)))
    writer.retain()
    gone = ask(url, "/outline", source="shop", after=0)
    assert (gone.status, gone.error["type"], gone.error["wanted_scn"]) == (410, "ScnNotFound", 0)
    assert gone.error["oldest_scn"] > 0
    assert ask(url, "/outline", source="shop", after=99).error["type"] == "ScnNotFound"
    wrong: dict[str, Any] = {"after": "soon", "upto": "-1", "most": 5000}
    for name, value in wrong.items():
        answer = ask(url, "/outline", source="shop", **{name: value})
        assert (answer.status, answer.error["type"]) == (400, "BadRequest")
        assert name in answer.error["message"]
    assert ask(url, "/outline", source="nobody").status == 404
