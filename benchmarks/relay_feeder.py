"""``python -m benchmarks.relay_feeder FOLDER OUT``: commits events at a steady rate, and notes when they were readable.

Waits for a line ``RATE SECONDS`` on its input, plays that, says how many events there were, and waits for the next one;
ends with its input. An event's time is when it was due: what an earlier sync made it wait for counts. OUT holds, for
each stretch of events that became readable together, their first id, how many, when the first was committed and when
they were readable, microseconds since 1970.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.relay_log import EventLog

_LEAD_S = 0.5
"""In which the events are made."""


def play(log: EventLog, rate: float, seconds: float) -> list[tuple[int, int, int, int]]:
    """Commit events; return what became readable when.

    They are made before, for what makes them is no part of what is measured, and would take a core from it.
    """
    gap_us = 1e6 / rate
    total, done = round(rate * seconds), 0
    readable = []
    began_us = time.time_ns() / 1000 + _LEAD_S * 1e6
    due_us = (began_us + np.arange(total) * gap_us).astype(np.int64)
    first, events = log.events + 1, log.made(due_us)
    while done < total:
        due = min(total, int((time.time_ns() / 1000 - began_us) // gap_us) + 1)
        if due <= done:
            time.sleep(max(0.0, (began_us + done * gap_us) / 1e6 - time.time()))
            continue
        log.append(events.part(done, due))
        readable.append((first + done, due - done, int(due_us[done]), time.time_ns() // 1000))
        done = due
    return readable


def main() -> int:
    """Play what is asked for until the input ends."""
    parser = argparse.ArgumentParser(prog="relay_feeder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    log = EventLog(given.folder, seed=1)
    readable: list[tuple[int, int, int, int]] = []
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        rate, seconds = map(float, line.split())
        readable += play(log, rate, seconds)
        np.save(given.out, np.array(readable, np.int64))
        print(f"played {number} up to {log.events}", flush=True)
    log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
