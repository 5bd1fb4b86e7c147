"""The output that counts, and the ten lines of one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import headrace.outputs
from benchmarks.relay_consumers import Watched
from headrace.client import Batch
from headrace.model.block import SystemEvent, SystemKind
from headrace.outputs import Counts, NoopOutput
from headrace.testing.notation import parse_history
from headrace.testing.relay import served
from tests.changelog.windows import TABLE as LOGGED
from tests.changelog.windows import window
from tests.client.logs import LogFolder
from tests.outputs.windows import TABLE, change, deliver, insert, window_of
from tests.requirements import req


@req("H18")
def test_what_is_delivered_nowhere_is_counted():
    output = NoopOutput()
    batch = parse_history("+I(1,a,b) -U(1,a,b)+U(1,a,c)").batch(TABLE)
    for scn in (4, 5):
        output.on_start_window(window_of(scn))
        output.on_data_batch(Batch(TABLE.table, TABLE, batch))
        output.on_system_event(SystemEvent(scn, 3, SystemKind.TRUNCATE, TABLE.table))
        output.on_end_window(window_of(scn))
    assert output.counts == Counts(2, 6, 2 * batch.nbytes, 2, 5)
    # A part keeps all of the buffers alive, and holds no more than its own.
    part = batch.slice(1, 1)
    output.on_data_batch(Batch(TABLE.table, TABLE, part))
    output.on_data_batch(Batch(TABLE.table, TABLE, batch, whole=True))
    assert output.counts.bytes == 2 * batch.nbytes + part.nbytes + batch.get_total_buffer_size()
    assert part.nbytes < batch.get_total_buffer_size()


@req("H18")
def test_consumers_of_the_benchmarks_deliver_to_it(tmp_path: Path) -> None:
    assert issubclass(Watched, NoopOutput)
    log = LogFolder(tmp_path / "log")
    log.register(LOGGED)
    log.append(*(window(scn, 7) for scn in range(1, 21)))
    words = [sys.executable, "-m", "benchmarks.relay_consumers"]
    with served({"bench": log.folder}) as url:
        options = ["--start", "oldest", "--upto", "20"]
        done = subprocess.run(
            [*words, url, "3", *options],
            input="go\n",
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
    log.close()
    waiting, ready, said = done.stdout.splitlines()
    assert (waiting, ready) == ("waiting", "ready")
    # What it counted is what the benchmark tells.
    assert json.loads(said)["rows"] == [140] * 3


@req("P30")
def test_an_output_of_ones_own_in_ten_lines():
    text = headrace.outputs.__doc__ or ""
    code = textwrap.dedent(re.split(r"::\n", text)[1])
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    names: dict[str, Any] = {}
    exec(code, names)
    output = names["Notes"]()
    output.on_start()
    told = [insert(1, 0, 1), change(1, 1, "=U", k=1, note="new"), change(1, 2, "=U", k=2, note="x")]
    deliver(output, 1, told)
    deliver(output, 2, [change(2, 0, "-D", k=2)])
    assert output.notes == {(1,): "new"}
