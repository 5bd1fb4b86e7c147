"""Everything since a time once more, without stopping: the consumer is rolled back, and told again from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.client import Subscription


def told_again(subscription: Subscription, hours: float) -> None:
    """Rewind; from any thread, while the subscription runs."""
    subscription.rewind(datetime.now(UTC) - timedelta(hours=hours))
