"""What capture's process does without."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from headrace.replicator.lean import without_pandas
without_pandas()
import pyarrow as pa
import headrace.replicator.runner, headrace.relay.capture, headrace.replicator.repair
assert pa.array([1, None]).to_pylist() == [1, None]
assert pa.table({"a": [1]}).to_pydict() == {"a": [1]}
print("pandas" in sys.modules)
"""


def test_arrays_are_made_without_pandas() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "False\n"), ran.stderr
