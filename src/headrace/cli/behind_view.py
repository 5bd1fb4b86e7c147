"""How it is said how far behind the source the tables are."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.plural import counted

__all__ = ["behind_line"]


def behind_line(
    lag_s: float | None,
    lag_changes: int,
    failing: Iterable[tuple[float | None, int]],
    *,
    is_heard: bool,
) -> str:
    """Return how far behind the tables are, those apart that fail and are not part of the frontier.

    Args:
        lag_s: of the frontier, None before the first.
        lag_changes: rows in the log above the frontier.
        failing: the same of each table that fails.
        is_heard: whether the log is known to have what the source did of late.
    """
    least = "" if is_heard or lag_s is None else "at least "
    lag = "not yet" if lag_s is None else f"{lag_s:.1f} s"
    line = f"behind {least}{lag}, {counted(lag_changes, 'change')}"
    lags = list(failing)
    if not lags:
        return line
    # One that fails and waits for nothing in the log lacks what nobody counts, such as a copy.
    known = [lag for lag, changes in lags if lag is not None and changes]
    if not known:
        return f"{line}, failing tables unknown"
    at_least = "" if is_heard and len(known) == len(lags) else "at least "
    changes = counted(sum(changes for _, changes in lags), "change")
    return f"{line}, failing tables {at_least}{max(known):.1f} s, {changes}"
