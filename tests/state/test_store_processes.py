"""Several processes on one state database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_new_database_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom headrace.state.store import StateStore\n"
        "sys.stdin.readline()\n"
        "for number in range(8):\n"
        f"    StateStore(Path({str(tmp_path)!r}) / str(number) / 'state.db').progress()\n"
    )
    openers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdin is not None
        # All of them wait for this line, so they start together.
        opener.stdin.write(b"\n")
        opener.stdin.close()

    assert [opener.wait(60) for opener in openers] == [0, 0, 0, 0]
