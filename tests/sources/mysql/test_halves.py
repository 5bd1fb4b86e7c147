"""Images that two threads walk through are those that one does."""

from __future__ import annotations

import random

import pytest

from headrace.model.rowkey import encode_rows
from headrace.sources.mysql.engine import ENGINES, Images
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType, Kind
from tests.sources.mysql.test_walk import TYPES, image, some_types

if "native" not in ENGINES:
    pytest.skip("no C compiler", allow_module_level=True)

from headrace.sources.mysql.built import NativeImages, walk


def walked(types: tuple[ColumnType, ...], images: list[bytes]) -> NativeImages:
    found, data = NativeImages(types), b"".join(images)
    assert walk(data, 0, len(data), found, found) == len(images)
    return found


def told(images: Images, place: int, zero_dates: ZeroDates) -> str:
    """Return a column as bytes in words, or what is wrong with it.

    Not all values are dates that Python has, or numbers that are equal to themselves.
    """
    try:
        column = images.column(place, zero_dates)
    except ValueError as error:
        return str(error)
    column.validate(full=True)
    return repr((column.type, encode_rows([column]).to_pylist()))


@pytest.mark.parametrize("zero_dates", ["null", "refuse"])
@pytest.mark.parametrize("seed", range(60))
def test_rows_appended_are_as_if_they_had_been_added(seed: int, zero_dates: ZeroDates) -> None:
    rng = random.Random(seed)
    types = some_types(rng, TYPES)
    images = [image(rng, types)[0] for _ in range(rng.randint(0, 70))]
    at = rng.randint(0, len(images))
    wanted, first, second = (walked(types, part) for part in (images, images[:at], images[at:]))
    first.columns.append(second.columns)
    assert (first.count, second.count) == (len(images), 0)
    for place in range(len(types)):
        assert told(first, place, zero_dates) == told(wanted, place, zero_dates)


def test_rows_of_other_columns_are_refused() -> None:
    one = NativeImages((ColumnType(Kind.LONG),))
    for more in (one, NativeImages((ColumnType(Kind.LONG), ColumnType(Kind.LONG)))):
        with pytest.raises(ValueError, match="other columns"):
            one.columns.append(more.columns)
