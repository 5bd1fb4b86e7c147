"""The tap: what the algorithm does, step by step, as a stream of small events.

The watermark side reports through one port (`Tap`), which is a no-op unless somebody asked for it. An event is a
value of `headrace.observe.tap.events`; on disk it is one line of JSON, described by a schema in ``schemas/``. Kinds and
field names are those of DBLog's reference implementation, and some of our own.
"""

from headrace.observe.tap.port import NO_TAP, Later, Tap, Told

__all__ = ["NO_TAP", "Later", "Tap", "Told"]
