"""What a Python worker of Spark does before anything else: import this environment's packages.

Spark puts archives of pyspark and py4j in front of the path. The same packages are installed here, compiled; from an
archive every worker compiles them anew, which takes longer than most of its work. Python runs a module of this name at
each start of a process that has this folder on its path; `headrace.spark.session` gives it to workers and nobody else.
"""

from __future__ import annotations

import importlib.util
import re
import sys

_ARCHIVES = re.compile(r"/(?:pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)$")

_before = list(sys.path)
sys.path[:] = [place for place in _before if not _ARCHIVES.search(place)]
if any(importlib.util.find_spec(name) is None for name in ("pyspark", "py4j")):
    sys.path[:] = _before
