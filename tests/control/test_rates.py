"""How often somebody may ask, and guess."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.replicator.api import guard
from headrace.replicator.api.rates import Buckets, RateLimits
from headrace.replicator.api.serve import limits_of
from headrace.replicator.serving import tokens_of
from tests.control.asking import ADMIN, OPERATOR, TOKENS, VIEWER, Asking, listening, served


@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 5)), max_size=60),
    per_s=st.floats(0.1, 10),
    most=st.integers(1, 10),
)
def test_never_more_than_a_burst_and_what_has_flown_in(
    steps: list[tuple[str, float]], per_s: float, most: int
) -> None:
    now = 100.0
    buckets = Buckets(per_s, most, lambda: now)
    taken: dict[str, list[float]] = {"a": [], "b": []}
    for name, pause in steps:
        now += pause
        waits = buckets.wait_s(name)
        assert buckets.take(name) == waits
        if not waits:
            taken[name].append(now)
        for times in taken.values():
            for begun in times:
                within = [at for at in times if begun <= at <= now]
                assert len(within) <= most + (now - begun) * per_s + 1e-6
        if waits:
            # Whoever waits so long may.
            now += waits + 1e-9
            assert buckets.take(name) < 1e-6
            taken[name].append(now)


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing flow into the buckets of a control plane, however long its answers take."""
    monkeypatch.setattr(guard, "Buckets", partial(Buckets, clock=lambda: 100.0))


@pytest.mark.usefixtures("no_time_passes")
def test_whoever_asks_too_often_waits_and_nobody_else_does(tmp_path: Path) -> None:
    limits = RateLimits(per_s=0.01, burst=3)
    with served(tmp_path) as (plane, _), listening(plane, TOKENS, limits) as url:
        often, seldom = Asking(url, VIEWER.secret), Asking(url, OPERATOR.secret)
        path = "/v1/contexts"
        assert [often("GET", path).status for _ in range(4)] == [200, 200, 200, 429]
        late = often("GET", path)
        assert late.error["type"] == "TooManyRequests"
        assert int(late.headers["retry-after"]) == 100
        assert seldom("GET", path).status == 200
        # Without a token an address counts, on pages that are open and on others.
        nobody = Asking(url)
        assert [nobody("GET", one).status for one in ("/healthz", path, "/healthz", path)] == [
            200, 401, 200, 429,
        ]  # fmt: skip


@pytest.mark.usefixtures("no_time_passes")
def test_who_guesses_at_tokens_waits_whatever_they_send(tmp_path: Path) -> None:
    limits = RateLimits(wrong_tokens=3)
    with served(tmp_path) as (plane, _), listening(plane, TOKENS, limits) as url:
        right = Asking(url, ADMIN.secret)
        assert right("GET", "/v1/contexts").status == 200
        wrong = [Asking(url, f"guess-number-{n}")("GET", "/v1/contexts") for n in range(4)]
        assert [one.status for one in wrong] == [401, 401, 401, 429]
        # A guess that is right tells nothing any more.
        late = right("GET", "/v1/contexts")
        assert (late.status, late.error["type"]) == (429, "TooManyRequests")
        assert int(late.headers["retry-after"]) == 20


def test_the_file_of_tokens_may_say_how_often(tmp_path: Path) -> None:
    assert limits_of(None) == RateLimits()
    file = tmp_path / "people.yaml"
    file.write_text(
        "tokens: [{name: ada, token: sixteen-characters-at-least}]\n"
        "rates: {per_s: 5, burst: 6, wrong_tokens: 7}\n"
    )
    assert limits_of(tokens_of(file)) == RateLimits(5, 6, 7)


@pytest.mark.parametrize("text", ["per_s: 1.0e-300", "per_s: 1.0e+300", f"burst: {10**30}"])
def test_rates_that_nobody_can_wait_for_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "people.yaml"
    file.write_text(
        f"tokens: [{{name: ada, token: a-long-enough-token, role: admin}}]\nrates: {{{text}}}\n"
    )
    with pytest.raises(ConfigError, match="rates"):
        tokens_of(file)
