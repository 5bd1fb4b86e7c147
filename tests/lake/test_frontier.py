from __future__ import annotations

import json
import os

import pytest

from headrace.lake import CorruptFrontier, FrontierStore, Manifest, TableEntry


def manifest(scn: int, **tables: TableEntry) -> Manifest:
    return Manifest(scn, 1_000 + scn, tables, 2_000 + scn)


@pytest.fixture
def store(tmp_path):
    return FrontierStore(tmp_path, "shop", keep=5)


def test_nothing_written_is_nothing_found(store):
    assert store.latest() is None
    assert store.at_or_below(10) is None
    assert store.list() == ()


def test_a_manifest_comes_back_as_it_was_written(store):
    one = Manifest(
        7,
        11,
        {
            "public.orders": TableEntry(3, 7, 5, "live"),
            "public.lines": TableEntry(0, 6, None, "copying"),
            "public.notes": TableEntry(2, 4, 4, "failing"),
        },
        12,
        345,
    )
    store.write(one)
    assert store.latest() == one
    assert FrontierStore(store.folder.parents[2], "shop").list() == (one,)
    assert store.folder.name == "frontier"
    assert [path.name for path in store.folder.iterdir()] == [f"{7:020d}.json"]


def test_a_manifest_without_a_count_is_read_as_one_that_begins_to_count(store):
    text = manifest(7).to_json()
    del text["changes"]
    store.write(manifest(7))
    (store.folder / f"{7:020d}.json").write_text(json.dumps(text))
    assert store.latest() == manifest(7)


def test_a_frontier_from_before_the_first_commit_is_of_no_time(store):
    store.write(Manifest(1, 0, {}, 2_001))
    store.write(manifest(9))
    assert store.not_after(1_008) is None
    assert store.not_after(1_009).scn == 9


def test_manifests_are_found_by_scn_whatever_the_order_of_writing(store):
    for scn in (30, 9, 200):
        store.write(manifest(scn))
    assert [m.scn for m in store.list()] == [9, 30, 200]
    assert store.at_or_below(8) is None
    assert [store.at_or_below(scn).scn for scn in (9, 29, 30, 10**6)] == [9, 9, 30, 200]
    assert store.latest().scn == 200


def test_writing_an_scn_again_replaces_its_manifest(store):
    store.write(manifest(5))
    store.write(manifest(5, t=TableEntry(1, 5, 5, "live")))
    assert store.scns() == (5,)
    assert store.latest().tables["t"].version == 1


def test_only_the_newest_are_kept(store):
    for scn in range(1, 12):
        store.write(manifest(scn))
    assert store.scns() == (7, 8, 9, 10, 11)


def test_what_a_crash_leaves_behind_is_passed_over(store):
    store.write(manifest(5))
    (store.folder / f"{6:020d}.4711.tmp").write_text('{"scn": 6')
    assert store.latest().scn == 5
    assert store.scns() == (5,)


@pytest.mark.parametrize("name", [".nfs000000000a1b2c3d", ".DS_Store"])
def test_a_hidden_file_is_nobodys_business(store, name):
    """A file server leaves one for a manifest that is removed while somebody reads it."""
    store.write(manifest(5))
    (store.folder / name).write_bytes(b"{}")
    store.write(manifest(6))
    assert store.scns() == (5, 6)


@pytest.mark.parametrize("name", ["notes.txt", "5.json", f"{5:020d}.json.bak"])
def test_a_foreign_file_is_named(store, name):
    store.write(manifest(5))
    (store.folder / name).write_text("{}")
    with pytest.raises(CorruptFrontier, match=name.replace(".", r"\.")) as caught:
        store.latest()
    assert caught.value.next_step


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"scn": 5, "com',
        "[]",
        "{}",
        json.dumps(manifest(6).to_json()),
        json.dumps(manifest(5).to_json() | {"tables": {"t": {"version": 1}}}),
        json.dumps(
            manifest(5).to_json()
            | {"tables": {"t": {"version": 1, "applied_scn": 1, "complete_scn": 1, "state": "ok"}}}
        ),
    ],
)
def test_a_damaged_manifest_is_named(store, text):
    store.write(manifest(5))
    (store.folder / f"{5:020d}.json").write_text(text)
    with pytest.raises(CorruptFrontier, match="00005"):
        store.latest()


def test_a_manifest_is_durable_before_it_can_be_seen(store, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        events.append("fsync")
        fsync(descriptor)

    def watched_replace(path, target):
        events.append("rename")
        replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(type(store.folder), "replace", watched_replace)
    store.write(manifest(5))
    assert events == ["fsync", "rename", "fsync"]


def test_a_manifest_removed_while_listing_is_passed_over(store, monkeypatch):
    store.write(manifest(5))
    store.write(manifest(6))
    known = store.scns()
    (store.folder / f"{6:020d}.json").unlink()
    monkeypatch.setattr(FrontierStore, "scns", lambda self: known)
    assert store.latest().scn == 5
    assert [m.scn for m in store.list()] == [5]


def test_what_was_cut_off_stays_away(store, monkeypatch):
    for scn in (5, 6, 7):
        store.write(manifest(scn))
    events = []
    fsync, unlink = os.fsync, type(store.folder).unlink

    def watched_fsync(descriptor):
        events.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watched_unlink(path):
        events.append(path.name)
        unlink(path)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(type(store.folder), "unlink", watched_unlink)
    store.cut(5)
    assert events == [f"{6:020d}.json", f"{7:020d}.json", store.folder.stat().st_ino]
    assert store.scns() == (5,)
    store.cut(5)
    assert len(events) == 3
