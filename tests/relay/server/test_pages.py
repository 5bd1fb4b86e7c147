"""What a relay says about itself: sources, table versions, its buffer, routes, counters, health."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from headrace.changelog import ChangeLogWriter
from headrace.client import HttpSettings
from headrace.client.transport import Relay
from headrace.errors import RelayError
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.testing.relay import served, sources_of
from tests.changelog.played import SMALL
from tests.changelog.windows import OTHER, TABLE, commit_us, coverage, scns, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req
from tests.waiting import until


def test_sources_say_what_they_hold(writer, tmp_path):
    with served({"shop": tmp_path / "log", "later": tmp_path / "none"}) as url:
        synced(writer, window(3), window(5), coverage(8))
        shop, later = ask(url, "/sources").json["sources"]
        assert shop == {
            "name": "shop",
            "state": "running",
            "oldest_scn": 0,
            "complete_scn": 5,
            "covered_scn": 8,
            "last_commit_us": commit_us(5),
            "bytes": shop["bytes"],
        }
        assert shop["bytes"] > 1000
        assert (later["name"], later["state"], later["covered_scn"]) == ("later", "none", 0)


@req("D47")
def test_a_log_that_cannot_be_read_is_told_of_as_such_and_of_no_other(writer, tmp_path):
    synced(writer, window(3))
    with ChangeLogWriter.open(tmp_path / "gone", SMALL) as other:
        synced(other, window(1))
    for segment in (tmp_path / "gone").glob("*.seg"):
        segment.unlink()
    with served({"shop": tmp_path / "log", "gone": tmp_path / "gone"}) as url:
        # As often as one asks: what is lost is not taken for a log without a beginning.
        for _ in range(2):
            shop, gone = ask(url, "/sources").json["sources"]
            assert (shop["state"], shop["covered_scn"], "error" in shop) == ("running", 3, False)
            assert (gone["state"], gone["error"]["type"]) == ("unreadable", "ChangeLogLost")
            assert ask(url, "/healthz").status == 503
            answer = ask(url, "/stream", source="gone", after="oldest", mode="pull")
            assert (answer.status, answer.error["type"]) == (500, "ChangeLogLost")
        relay = Relay(url, HttpSettings())
        assert relay.source("shop")["covered_scn"] == 3
        with pytest.raises(RelayError, match="Segments of the change log"):
            relay.source("gone")
        relay.close()


def test_every_table_version_is_registered_or_those_that_were_asked_for(writer, folder, url):
    def versions(**query: Any) -> list[TableSchema]:
        found = ask(url, "/register", source="shop", **query).json["schemas"]
        assert all(
            one["table"] == f"{one['schema']['schema']}.{one['schema']['table']}" for one in found
        )
        assert all(
            TableSchema.from_json(one["schema"]).schema_id == int(one["id"], 16) for one in found
        )
        return [TableSchema.from_json(one["schema"]) for one in found]

    assert {schema.table for schema in versions()} == {TABLE.table, OTHER.table}
    assert versions(ids=f"{OTHER.schema_id:016x}") == [OTHER]
    both = f"{OTHER.schema_id:016x},{TABLE.schema_id:016x}"
    assert versions(ids=both) == [OTHER, TABLE]
    newer = replace(TABLE, columns=TABLE.columns[:2])
    FileRegistry(folder / "schemas").put(newer)
    assert versions()[-1] == newer


@req("D45")
def test_the_buffer_is_shown_segment_by_segment(writer, url):
    synced(writer, *(window(scn) for scn in range(1, 40)))
    whole = ask(url, "/buffer", source="shop").json
    segments = whole["segments"]
    assert len(segments) > 3
    assert [one["first_scn"] for one in segments[1:]] == [
        one["last_scn"] + 1 for one in segments[:-1]
    ]
    assert (segments[0]["first_scn"], segments[-1]["last_scn"]) == (1, 39)
    for one in segments:
        assert one["first_commit_us"] == commit_us(one["first_scn"])
        assert one["last_commit_us"] == commit_us(one["last_scn"])
    assert whole["bytes"] == sum(one["bytes"] for one in segments)
    writer.retain()
    left = ask(url, "/buffer", source="shop").json
    assert left["oldest_scn"] == left["segments"][0]["first_scn"] - 1 > 0


def test_a_relay_without_routes_names_itself(writer, url):
    assert ask(url, "/routes").json == {"version": 0, "sources": {"shop": {"relays": [url]}}}


def test_a_routing_file_is_followed_while_the_relay_runs(writer, folder, tmp_path):
    synced(writer, window(1))
    routes = tmp_path / "routes.json"

    def written(document: object) -> None:
        draft = tmp_path / "draft"
        draft.write_text(document if isinstance(document, str) else json.dumps(document))
        os.replace(draft, routes)

    written({"version": 12, "sources": {"shop": {"relays": ["http://a:1", "http://b:2"]}}})
    (source,) = sources_of({"shop": folder})
    with served((replace(source, relays=routes),)) as url:

        def version_of_a_stream() -> str:
            with stream(url, mode="pull") as frames:
                return frames.headers["headrace-routes"]

        assert ask(url, "/routes").json == {
            "version": 12,
            "sources": {"shop": {"relays": ["http://a:1", "http://b:2"]}},
        }
        assert version_of_a_stream() == "12"
        written({"version": 13, "sources": {"shop": {"relays": ["http://c:3"]}}})
        assert version_of_a_stream() == "13"
        assert ask(url, "/routes").json["sources"]["shop"]["relays"] == ["http://c:3"]
        # Half a document is none: what was known stays.
        written('{"version": 14, ')
        assert version_of_a_stream() == "13"
        assert ask(url, "/routes").json["sources"]["shop"]["relays"] == ["http://c:3"]


def test_routes_of_the_settings_have_the_version_of_their_file(writer, folder):
    (source,) = sources_of({"shop": folder})
    listed = replace(source, relays=("https://a:1",), routes_version=77)
    with served((listed,)) as url:
        assert ask(url, "/routes").json == {
            "version": 77,
            "sources": {"shop": {"relays": ["https://a:1"]}},
        }


def test_metrics_count_what_was_sent(writer, url):
    synced(writer, window(1), window(2))
    with stream(url, after=0, mode="pull") as frames:
        frames.blocks()
        sent = len(frames.raw)
    ask(url, "/stream", source="shop", after=77)

    text, lines = "", dict[str, str]()

    def left() -> bool:
        nonlocal text, lines
        text = ask(url, "/metrics").body.decode()
        lines = {line.partition("{")[0]: line.rpartition(" ")[2] for line in text.splitlines()}
        return lines["headrace_relay_streams"] == "0"

    until(left, "the relay has seen us leave")
    assert sent < int(lines["headrace_relay_bytes_sent_total"]) < sent + 200
    assert lines["headrace_relay_streams_total"] == "1"
    assert lines["headrace_relay_streams"] == "0"
    assert lines["headrace_relay_covered_scn"] == "2"
    assert 'type="ScnNotFound"' in text


def test_health_tells_what_is_wrong(writer, folder, url):
    synced(writer, window(1))
    assert ask(url, "/healthz").json == {"status": "ok"}
    (folder / "tail").write_bytes(b"short")
    answer = ask(url, "/healthz")
    assert answer.status == 503
    assert "tail" in answer.json["wrong"][0]


@req("D47")
def test_a_noisy_source_evicts_nothing_of_another(tmp_path):
    quiet, noisy = tmp_path / "quiet", tmp_path / "noisy"
    with (
        ChangeLogWriter.open(quiet, SMALL) as one,
        ChangeLogWriter.open(noisy, SMALL) as other,
        served({"quiet": quiet, "noisy": noisy}) as url,
    ):
        synced(one, *(window(scn) for scn in range(1, 20)))
        for start in range(1, 400, 20):
            synced(other, *(window(scn) for scn in range(start, start + 20)))
            other.retain()
        assert scns(pulled(url, source="quiet", after=0)) == list(range(1, 20))
        found = {one["name"]: one for one in ask(url, "/sources").json["sources"]}
        assert found["quiet"]["oldest_scn"] == 0
        assert found["noisy"]["oldest_scn"] > 300
        with stream(url, source="quiet", after=19) as frames:
            synced(other, window(1000))
            synced(one, window(20))
            assert scns(frames.until(20)) == [20]


@pytest.mark.parametrize("path", ["/sources", "/routes", "/metrics", "/healthz"])
def test_pages_are_read_only(writer, url, path):
    assert ask(url, path, post={}).status == 404
