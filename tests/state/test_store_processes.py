"""Several processes on one state database."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from headrace.errors import StateError
from headrace.state.store import StateStore


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


def test_nobody_is_refused_who_opens_a_new_database_beside_others(tmp_path: Path) -> None:
    """Of six who want it to keep a log beside it, about one time in thirty SQLite refuses one at once."""

    def opened(number: int) -> list[BaseException]:
        gate, errors = threading.Barrier(6), list[BaseException]()

        def opener() -> None:
            gate.wait()
            try:
                StateStore(tmp_path / str(number) / "state.db").close()
            except StateError as error:
                errors.append(error)

        threads = [threading.Thread(target=opener) for _ in range(gate.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    assert [error for number in range(200) for error in opened(number)] == []
