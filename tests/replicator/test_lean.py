"""What capture's process does without."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from headrace.replicator.lean import begin_lean
begin_lean()
import pyarrow as pa
import headrace.replicator.runner, headrace.relay.capture, headrace.replicator.repair
assert pa.array([1, None]).to_pylist() == [1, None]
assert pa.table({"a": [1]}).to_pydict() == {"a": [1]}
left_out = {"pandas", "polars", "sqlglot"} & set(sys.modules)
print(left_out, pa.default_memory_pool().backend_name)
"""


def test_capture_imports_neither_data_frames_nor_dialects_and_gives_memory_back() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "set() system\n"), ran.stderr
