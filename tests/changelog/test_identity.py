"""What tells a change log from others."""

from __future__ import annotations

import shutil

from headrace.changelog import ChangeLogWriter
from headrace.changelog.identity import identity_of
from tests.changelog.windows import window


def test_a_log_keeps_its_identity_and_another_one_in_its_place_has_its_own(tmp_path):
    folder = tmp_path / "log"
    assert identity_of(folder) == ""

    def written(scn: int) -> str:
        with ChangeLogWriter.open(folder) as log:
            log.append(window(scn))
            log.sync()
        return identity_of(folder)

    first = written(1)
    assert len(first) == 6
    assert written(2) == first
    shutil.rmtree(folder)
    second = written(1)
    assert second not in ("", first)
    # Segments and tail alone are gone: what begins is another log all the same.
    for path in folder.iterdir():
        if path.name != "identity":
            path.unlink()
    assert written(1) not in ("", second)
    (folder / "identity").write_text("not one\n")
    assert identity_of(folder) == ""
    assert written(2) != ""
