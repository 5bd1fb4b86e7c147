"""H20: the contract of the tap: thirteen kinds with their fields, versioned, and JSON Schemas that say so."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from headrace.demo.scenes import SCENES, recording
from headrace.observe.tap.events import CONTRACT, KINDS, OURS, OUT_OF_BAND, VERSION
from headrace.observe.tap.schema import FOLDER, schema_files
from headrace.observe.tap.wording import say
from tests.observe.json_schema import assert_valid, faults_of_line, lines_of
from tests.requirements import req

CONTRACT_FIELDS = {
    "cdc": "lsn op table pk tx_id",
    "sink.event": "lsn op table pk origin tx_id dump_id chunk_id sink_name",
    "watermark.written": "level token chunk_id",
    "watermark.received": "level token chunk_id lsn latency_ms",
    "chunk.selected": "chunk_id request_id dump_id table mode pk_min pk_max start_after_pk row_count "
    "final_chunk fingerprint",
    "chunk.collision": "chunk_id excluded_pk cause_lsn cause_op cause_tx_id",
    "chunk.completed": "chunk_id emitted excluded last_pk lsn duration_ms final_chunk",
    "checkpoint.advanced": "lsn reason",
    "request.transition": "request_id scope table state prev_state reason",
    "error": "boundary",
    "stream.heartbeat": "queue_depth queue_capacity",
    "stream.standby": "",
    "stream.resumed": "",
}


@req("H20")
def test_the_thirteen_kinds_have_their_fields() -> None:
    assert [event.kind for event in CONTRACT] == list(CONTRACT_FIELDS)
    for event in CONTRACT:
        own = {item.name for item in fields(event)}
        assert set(CONTRACT_FIELDS[event.kind].split()) <= own, event.kind


@req("H20")
def test_our_own_kinds_are_beside_them() -> None:
    assert len(KINDS) == len(CONTRACT) + len(OURS)
    assert {event.kind for event in OUT_OF_BAND} == {
        "stream.standby", "stream.resumed", "stream.dropped",
    }  # fmt: skip


@req("H20", "F17")
def test_the_stored_schemas_are_those_of_the_classes() -> None:
    there = {
        p.relative_to(FOLDER).as_posix(): json.loads(p.read_text()) for p in FOLDER.rglob("*.json")
    }
    assert there == json.loads(json.dumps(schema_files())), "run: make tap-data"


@req("H20", "F17")
@pytest.mark.parametrize("scene", SCENES)
def test_every_line_of_a_scene_fits_its_schema(scene: str) -> None:
    assert_valid(lines_of(recording(scene)))


@req("H20")
def test_a_line_that_breaks_the_contract_is_found() -> None:
    good = next(line for line in lines_of(recording("chunk42")) if '"cdc"' in line)
    assert faults_of_line(good) == []
    value = json.loads(good)
    for change in ({"op": "MERGE"}, {"v": VERSION + 1}, {"seq": None}, {"pk": 7}, {"extra": 1},
                   {"ts": "yesterday"}, {"seq": -1}, {"tx_id": None}):  # fmt: skip
        assert faults_of_line(json.dumps(value | change)), change
    for name in ("pk", "lsn", "run_id"):
        assert faults_of_line(json.dumps({k: v for k, v in value.items() if k != name})), name


def test_every_kind_has_words_for_people() -> None:
    said = {
        (line := json.loads(text))["kind"]: say(line)
        for scene in SCENES
        for text in lines_of(recording(scene))
    }
    assert all(said.values())
    assert say({"kind": "lease.lost"}) == ""
