"""How a subscription works."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.http import HttpSettings
from headrace.client.relays import Backoff
from headrace.errors import ConfigError

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes, times and numbers.

    Attributes:
        buffer_bytes: received and not yet delivered at most; a block that is larger goes through alone.
        max_block_bytes: a larger block is refused by name.
        pull: ask again and again instead of being sent what comes.
        pull_bytes: of blocks in one answer.
        pull_wait_ms: how long a relay may wait for the first block of an answer.
        pull_every_s: pause when nothing was left.
        merge_windows: make transactions that come together one window: far fewer callbacks on a busy stream.
        checkpoint_every: windows between two checkpoints.
        checkpoint_rows: also inside a window, when so many rows came since the last one; None for never. The
            consumer then makes everything durable when `Consumer.on_checkpoint` asks, also what belongs to an open
            window.
        idle_checkpoint_s: how often a place is remembered that moved without windows, or with fewer than
            ``checkpoint_every``.
        budget_s: time of one callback; who takes longer has failed.
        retries: of a window before the subscription is suspended.
        retry: pauses before them.
        workers: threads that take the events of one window; 1 for the subscription's own.
        across_windows: let workers go on into the next windows: all of a key's events still come in order, but a
            window may end before its events were processed. Checkpoints wait for all.
        patience_s: how long relays that do not hold the place are asked again.
        reconnect: pauses when no relay answers.
        http: time-outs, token, certificates.
    """

    buffer_bytes: int = 64 * 2**20
    max_block_bytes: int = 2 * 2**30
    pull: bool = False
    pull_bytes: int = 16 * 2**20
    pull_wait_ms: int = 1000
    pull_every_s: float = 0.0
    merge_windows: bool = False
    checkpoint_every: int = 1
    checkpoint_rows: int | None = None
    idle_checkpoint_s: float = 1.0
    budget_s: float = 300.0
    retries: int = 3
    retry: Backoff = field(default_factory=Backoff)
    workers: int = 1
    across_windows: bool = False
    patience_s: float = 30.0
    reconnect: Backoff = field(default_factory=Backoff)
    http: HttpSettings = field(default_factory=HttpSettings)

    def validate(self) -> None:
        """Check each field.

        Raises:
            ConfigError: names the first field that cannot be used.
        """
        least: dict[str, float] = {
            "buffer_bytes": 1,
            "max_block_bytes": 128,
            "pull_bytes": 1,
            "pull_wait_ms": 0,
            "checkpoint_every": 1,
            "idle_checkpoint_s": 0,
            "retries": 0,
            "workers": 1,
            "patience_s": 0,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, below {bound}.",
                    next_step=f"set {name} to {bound} or more, or leave it out.",
                )
        if self.budget_s <= 0:
            raise ConfigError(
                f"budget_s is {self.budget_s}.", next_step="set budget_s above 0, or leave it out."
            )
