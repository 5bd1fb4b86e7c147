"""Python processes of their own, for tests that need several."""

from __future__ import annotations

import subprocess
import sys


def run(script: str, *arguments: str, before: str = "") -> str:
    """Run a script in a process of its own and return what it printed."""
    command = [sys.executable, "-c", script, *arguments]
    if before:
        command = ["unshare", "-m", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
