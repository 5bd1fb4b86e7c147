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


SLICES = """
import ctypes, os, struct, threading
from headrace.replicator.lean import begin_lean

def slice_ns():
    asked = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[os.uname().machine], 0, asked, 56, 0) == 0
    return struct.unpack_from("=Q", asked.raw, 24)[0], struct.unpack_from("=i", asked.raw, 16)[0]

os.nice(3)
before, found = slice_ns(), []
begin_lean()
thread = threading.Thread(target=lambda: found.append(slice_ns()))
thread.start()
thread.join()
print(before[0] > 300_000, slice_ns(), found)
"""


def _takes_slices() -> bool:
    numbers = platform.release().partition("-")[0].split(".")[:2]
    return sys.platform == "linux" and tuple(map(int, numbers)) >= (6, 12)


@pytest.mark.skipif(not _takes_slices(), reason="Linux listens to it from 6.12 on")
def test_every_thread_of_a_capture_asks_for_short_slices_and_keeps_its_niceness() -> None:
    ran = subprocess.run([sys.executable, "-c", SLICES], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "True (300000, 3) [(300000, 3)]\n"), ran.stderr
