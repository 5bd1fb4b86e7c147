"""What capture's process does without."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from headrace.replicator.lean import begin_lean
begin_lean()
import pyarrow as pa
import headrace.replicator.runner, headrace.relay.capture, headrace.replicator.repair
assert pa.array([1, None]).to_pylist() == [1, None]
assert pa.table({"a": [1]}).to_pydict() == {"a": [1]}
left_out = {"pandas", "polars", "sqlglot"} & set(sys.modules)
print(left_out, pa.default_memory_pool().backend_name, round(sys.getswitchinterval(), 6))
"""


def test_capture_imports_neither_data_frames_nor_dialects_and_gives_memory_back() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "set() system 0.0005\n"), ran.stderr


BATCHES_AMONG_SMALL_BLOCKS = """
import ctypes
from pathlib import Path
from headrace.replicator.lean import begin_lean
begin_lean()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
batch = 8 << 20

def filled():
    block = libc.malloc(batch)
    ctypes.memset(block, 1, batch)
    return block

def anonymous_mib():
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]) / 1024

libc.free(filled())
before, batches = anonymous_mib(), []
for _ in range(4):
    batches.append(filled())
    libc.malloc(1000)
held = anonymous_mib()
for block in batches:
    libc.free(block)
print(round(held - before) >= 30, round(anonymous_mib() - before) <= 2)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc moves its bound")
def test_batches_that_are_let_go_of_leave_no_holes_among_small_blocks() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BATCHES_AMONG_SMALL_BLOCKS], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "True True\n"), ran.stderr
