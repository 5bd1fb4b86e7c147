"""Positions of local jobs."""

from __future__ import annotations

import pytest

from headrace.changelog import jobs, register_job, unregister_job
from headrace.errors import StateError


def test_positions_are_kept_and_replaced(tmp_path):
    assert jobs(tmp_path) == {}
    register_job(tmp_path, "apply", 7)
    register_job(tmp_path, "shop.v2", 0)
    assert jobs(tmp_path) == {"apply": 7, "shop.v2": 0}
    register_job(tmp_path, "apply", 9)
    assert jobs(tmp_path)["apply"] == 9
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_job_can_be_forgotten(tmp_path):
    unregister_job(tmp_path, "never")
    register_job(tmp_path, "apply", 7)
    unregister_job(tmp_path, "apply")
    assert jobs(tmp_path) == {}


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError):
        register_job(tmp_path, name, 1)


def test_a_negative_position_is_refused(tmp_path):
    with pytest.raises(ValueError):
        register_job(tmp_path, "apply", -1)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"applied_scn": "7"}', '{"applied_scn": -1}'])
def test_a_file_without_a_position_is_a_named_error(tmp_path, text):
    register_job(tmp_path, "apply", 1)
    (tmp_path / "jobs" / "apply.json").write_text(text)
    with pytest.raises(StateError, match=r"apply\.json") as caught:
        jobs(tmp_path)
    assert caught.value.next_step
