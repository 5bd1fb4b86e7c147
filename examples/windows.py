"""Windows by asking for them, and by callbacks as Arrow batches."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client import Batch, Consumer, Event, Subscription


def changes_per_table(subscription: Subscription) -> Counter[str]:
    found: Counter[str] = Counter()
    for window in subscription.windows():
        for event in window:
            if isinstance(event, Event):
                found[str(event.table)] += 1
        window.done()
    return found


class Turnover(Consumer):
    """Adds up the orders that come, a batch at a time."""

    def __init__(self) -> None:
        self.total = 0

    def on_data_batch(self, batch: Batch) -> None:
        if str(batch.table) == "public.orders":
            came = batch.rows.filter(pc.is_in(batch.rows["_op"], pa.array(["+I", "+R"])))
            self.total += pc.sum(came["total"]).as_py() or 0
