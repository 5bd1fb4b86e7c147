"""Numbers in Prometheus' text form, version 0.0.4.

In: families of samples. Out: text. No state.

Source: Prometheus documentation, "Exposition formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CONTENT_TYPE", "Family", "Kind", "Sample", "number", "text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Sample:
    """One number.

    Attributes:
        labels: names and values that tell it from others of its family, in the order in which they are shown.
        value: of the moment.
        suffix: ``_bucket``, ``_sum`` or ``_count`` in a histogram.
    """

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name.

    Attributes:
        name: ``headrace_…``.
        kind: as Prometheus has it.
        help: one sentence.
        samples: in order; a family without any is not shown.
    """

    name: str
    kind: Kind
    help: str
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str], suffix: str = "") -> None:
        """Add a number."""
        self.samples.append(Sample(labels, value, suffix))


def text(families: Iterable[Family]) -> str:
    """Return families as Prometheus reads them."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += [_line(family.name, sample) for sample in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(
        f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels.items()
    )
    shown = f"{{{labels}}}" if labels else ""
    return f"{name}{sample.suffix}{shown} {number(sample.value)}"


def number(value: float) -> str:
    """Return a number as Prometheus writes it."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
