"""Writes what the tap ships with: the JSON Schemas of its events, and the recorded scenes."""

from __future__ import annotations

import json

from headrace.demo.scenes import SCENES, recording
from headrace.demo.scenes.record import record
from headrace.observe.tap.schema import FOLDER, schema_files


def main() -> None:
    """Write every file anew."""
    for path, schema in schema_files().items():
        target = FOLDER / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
        print(target)
    for scene in SCENES:
        recording(scene).write_text(record(scene), encoding="utf-8")
        print(recording(scene))


if __name__ == "__main__":
    main()
