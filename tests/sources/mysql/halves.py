"""Who walks through the second half of many images: a test decides, where a machine decides by its load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

from headrace.sources.mysql.engine import ENGINES

__all__ = ["halves"]


class Begun(ThreadPoolExecutor):
    """A thread that has done its work before whoever gave it goes on."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        given = super().submit(fn, *args, **kwargs)
        wait([given])
        return given


@pytest.fixture(params=["alone", "beside us", "left to us"])
def halves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Have images walked through in one, or however few in two halves: beside us, or both by us after all."""
    how: str = request.param
    if "native" not in ENGINES:
        pytest.skip("no C compiler")
    from headrace.sources.mysql import built

    with ExitStack() as stack:
        monkeypatch.setattr(built, "_may_share", lambda: how != "alone")
        monkeypatch.setattr(built, "_SHARED_BYTES", 0)
        if how == "beside us":
            helper: ThreadPoolExecutor = stack.enter_context(Begun(1))
        else:
            helper, busy = stack.enter_context(ThreadPoolExecutor(1)), Event()
            helper.submit(busy.wait)
            stack.callback(busy.set)
        monkeypatch.setattr(built, "_helper", lambda: helper)
        yield how
