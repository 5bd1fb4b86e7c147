"""Lines over an axis as SVG: enough for the plots of the page, and the same bytes for the same figures.

In: series of points. Out: one document without scripts, fonts or references to anything else, which a browser and
GitHub show as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "Series", "chart"]

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 170, 40, 50
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-size:15px;font-weight:bold}"
    ".grid{stroke:#ddd}.axis{stroke:#333}polyline{fill:none;stroke-width:2}"
)


@dataclass(frozen=True, slots=True)
class Axis:
    """One of the two.

    Attributes:
        label: what it counts, with the unit.
        ticks: values that are marked; the axis goes from the first to the last.
        log: whether equal steps are equal ratios.
    """

    label: str
    ticks: tuple[float, ...]
    log: bool = False

    @classmethod
    def decades(cls, label: str, values: Sequence[float]) -> Axis:
        """Return an axis of powers of ten around some values, all above 0."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(label, tuple(10.0**power for power in range(low, max(high, low + 1) + 1)), True)

    @classmethod
    def from_zero(cls, label: str, values: Sequence[float]) -> Axis:
        """Return an axis from 0 to above the largest of some values, with four to ten steps."""
        most = max(values)
        size = 10.0 ** math.floor(math.log10(most))
        step = next(s for s in (size / 5, size / 2, size, size * 2) if most / s <= 10)
        return cls(label, tuple(step * i for i in range(math.ceil(most / step) + 1)))

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at the first tick and 1 at the last."""
        first, last = self.ticks[0], self.ticks[-1]
        if self.log:
            return math.log(value / first) / math.log(last / first)
        return (value - first) / (last - first)


@dataclass(frozen=True, slots=True)
class Series:
    """One line.

    Attributes:
        name: for the legend.
        points: of both axes, in the order in which they are joined.
        colour: as CSS has it.
        dashed: whether the line is broken.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dashed: bool = False


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Return a document with all series, each point marked and told when it is pointed at."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>',
        *_grid(x, y),
    ]
    for number, one in enumerate(series):
        out += _line(one, x, y)
        out += _legend(one, _TOP + 10 + 20 * number)
    return "\n".join([*out, "</svg>"]) + "\n"


def _grid(x: Axis, y: Axis) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    lines = []
    for tick in x.ticks:
        at = _x(x, tick)
        lines.append(f'<line class="grid" x1="{at}" y1="{_TOP}" x2="{at}" y2="{bottom}"/>')
        lines.append(f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{tick:,g}</text>')
    for tick in y.ticks:
        at = _y(y, tick)
        lines.append(f'<line class="grid" x1="{_LEFT}" y1="{at}" x2="{right}" y2="{at}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{at}" dy="4" text-anchor="end">{tick:,g}</text>')
    middle = (_TOP + bottom) // 2
    return [
        *lines,
        f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        f'<text x="{(_LEFT + right) // 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x.label)}</text>',
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>',
    ]


def _line(one: Series, x: Axis, y: Axis) -> list[str]:
    places = [(_x(x, at), _y(y, value)) for at, value in one.points]
    joined = " ".join(f"{at},{value}" for at, value in places)
    lines = [f'<polyline points="{joined}" {_stroke(one)}/>']
    for (left, top), (at, value) in zip(places, one.points, strict=True):
        told = escape(f"{one.name}: {value:,g} at {at:,g}")
        dot = f'<circle cx="{left}" cy="{top}" r="3.5" fill="{one.colour}">'
        lines.append(f"{dot}<title>{told}</title></circle>")
    return lines


def _legend(one: Series, top: int) -> list[str]:
    left = _WIDTH - _RIGHT + 14
    line = f'<line x1="{left}" y1="{top}" x2="{left + 26}" y2="{top}" stroke-width="2" {_stroke(one)}/>'
    return [line, f'<text x="{left + 34}" y="{top}" dy="4">{escape(one.name)}</text>']


def _stroke(one: Series) -> str:
    return f'stroke="{one.colour}"' + (' stroke-dasharray="5 4"' if one.dashed else "")


def _x(axis: Axis, value: float) -> float:
    return round(_LEFT + axis.share(value) * (_WIDTH - _RIGHT - _LEFT), 1)


def _y(axis: Axis, value: float) -> float:
    bottom = _HEIGHT - _BOTTOM
    return round(bottom - axis.share(value) * (bottom - _TOP), 1)
