"""Applies one batch of a change log in a process of its own, so that what it takes is nobody else's.

Called as ``python -m benchmarks.apply_child FOLDER FROM_SCN TO_SCN``; FOLDER is that of `bench_apply_memory`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.targets.delta import DeltaTarget


def main(folder: Path, from_scn: int, to_scn: int) -> int:
    """Apply what lies between two SCNs."""
    spark = build_session(SessionSettings(scratch=folder / "spark"))
    target = DeltaTarget(spark, folder / "headrace", "bench")
    applier = Applier(ApplyOptions("bench", folder / "changelog", folder / "headrace"), target)
    applier.begin()
    applier.process(from_scn, to_scn)
    failing = applier.failing
    applier.close()
    spark.stop()
    return len(failing)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
