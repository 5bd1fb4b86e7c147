"""Deletion vectors: any places, every way to name them, and what can be wrong with one."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import numpy as np
import pytest

from headrace.lake.vectors import _TO_DELTA, read_vector, vector_id, vector_path, write_vectors
from tests.places import local


def test_a_short_vector_may_stand_in_the_log(tmp_path: Path) -> None:
    (apart,) = write_vectors(tmp_path, [np.array([3, 4, 7, 11, 18, 29])])
    raw = local(vector_path(tmp_path, apart)).read_bytes()[5:-4]
    assert len(raw) % 4 == 0
    descriptor = {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(raw).translate(_TO_DELTA).decode(),
        "sizeInBytes": len(raw),
        "cardinality": 6,
    }
    assert read_vector(tmp_path, descriptor).tolist() == [3, 4, 7, 11, 18, 29]


def test_a_name_in_the_log_is_a_path(tmp_path: Path) -> None:
    named = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
    file = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_path(tmp_path, named) == tmp_path / "ab" / file
    absolute = {"storageType": "p", "pathOrInlineDv": "file:/far/away.bin"}
    assert vector_path(tmp_path, absolute) == Path("/far/away.bin")


def test_vectors_of_any_size_share_a_file(tmp_path: Path) -> None:
    generator = random.Random(5)
    given = [
        np.array(sorted(generator.sample(range(limit), count)), np.int64)
        for limit, count in ((1, 1), (10, 3), (200_000, 70_000), (2**33, 50))
    ]
    written = write_vectors(tmp_path, given)
    assert len(list(tmp_path.iterdir())) == 1
    assert len({vector_id(descriptor) for descriptor in written}) == len(given)
    for places, descriptor in zip(given, written, strict=True):
        assert read_vector(tmp_path, descriptor).tolist() == places.tolist()


def test_the_name_of_a_vectors_file_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def note(folder: Path) -> None:
        assert list(folder.iterdir())
        synced.append(folder)

    monkeypatch.setattr("headrace.store.local.sync_folder", note)
    write_vectors(tmp_path, [np.array([1, 2])])
    assert synced == [tmp_path]


def test_no_vector_is_no_file(tmp_path: Path) -> None:
    assert write_vectors(tmp_path, []) == []
    assert not list(tmp_path.iterdir())
    assert read_vector(tmp_path, None).tolist() == []
    assert vector_id(None) == ""


@pytest.mark.parametrize("place", [4, 6, 12, 40, -2])
def test_a_damaged_vector_is_refused(tmp_path: Path, place: int) -> None:
    (descriptor,) = write_vectors(tmp_path, [np.arange(0, 100, 3)])
    path = local(vector_path(tmp_path, descriptor))
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0x40
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="deletion vector"):
        read_vector(tmp_path, descriptor)


def test_a_vector_of_another_count_is_refused(tmp_path: Path) -> None:
    (descriptor,) = write_vectors(tmp_path, [np.arange(5)])
    with pytest.raises(ValueError, match="cardinality"):
        read_vector(tmp_path, {**descriptor, "cardinality": 4})
