"""Requests that are lost, or carried out without an answer: what there is says what happened."""

from __future__ import annotations

import pytest

from headrace.errors import Retry, StoreUnavailable
from headrace.store import ObjectPath, store_of
from headrace.testing.fault_proxy import Fault, FaultProxy, Request, pass_all
from headrace.testing.object_store import ObjectServer

pytestmark = pytest.mark.object_store


@pytest.fixture
def path(object_server: ObjectServer, proxy: FaultProxy, prefix: ObjectPath) -> ObjectPath:
    """Give a key behind the proxy, and a client that soon gives up."""
    bucket = object_server.bucket(proxy.endpoint, timeout_s=10, retries=2)
    return ObjectPath(bucket, prefix.key) / "log" / "0.json"


def puts(fault: Fault, times: int = 1_000) -> object:
    """Return a rule for the first few puts."""
    left = [times]

    def rule(request: Request) -> Fault:
        if request.method != "PUT" or not left[0]:
            return Fault.NONE
        left[0] -= 1
        return fault

    return rule


def there(path: ObjectPath, prefix: ObjectPath) -> bytes:
    """Return what the server itself has."""
    return store_of(prefix).read(ObjectPath(prefix.bucket, path.key))


@pytest.mark.parametrize("times", [1, 2, 1_000])
def test_a_write_whose_answer_is_lost_is_found_to_be_ours(
    path: ObjectPath, proxy: FaultProxy, prefix: ObjectPath, times: int
) -> None:
    proxy.rule = puts(Fault.LOST_ANSWER, times)  # type: ignore[assignment]
    store_of(path).put_if_absent(path, b"ours")
    assert there(path, prefix) == b"ours"
    assert any(request.conditional for request in proxy.requests)
    # Whoever comes next is told so, whatever happens to his answers.
    proxy.rule = puts(Fault.LOST_ANSWER, times)  # type: ignore[assignment]
    with pytest.raises(FileExistsError):
        store_of(path).put_if_absent(path, b"theirs")
    assert there(path, prefix) == b"ours"


def test_a_write_that_never_arrived_is_no_write(
    path: ObjectPath, proxy: FaultProxy, prefix: ObjectPath
) -> None:
    proxy.rule = puts(Fault.LOST_REQUEST)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable, match="no answer"):
        store_of(path).put_if_absent(path, b"ours")
    assert store_of(prefix).names(ObjectPath(prefix.bucket, path.parent.key)) == []
    proxy.rule = pass_all
    store_of(path).put_if_absent(path, b"ours")
    assert there(path, prefix) == b"ours"


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.BUSY])
def test_a_write_that_meets_another_is_decided_later_and_nobody_is_asked_for_it(
    path: ObjectPath, proxy: FaultProxy, prefix: ObjectPath, fault: Fault
) -> None:
    proxy.rule = puts(fault)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable) as caught:
        store_of(path).put_if_absent(path, b"ours")
    assert caught.value.retry is Retry.TIMED
    # Somebody else got through meanwhile: then the name is his.
    store_of(prefix).put(ObjectPath(prefix.bucket, path.key), b"theirs")
    with pytest.raises(FileExistsError):
        store_of(path).put_if_absent(path, b"ours")
    assert there(path, prefix) == b"theirs"


def test_who_cannot_read_back_does_not_know(
    path: ObjectPath, proxy: FaultProxy, prefix: ObjectPath
) -> None:
    proxy.rule = lambda _: Fault.LOST_ANSWER
    with pytest.raises(StoreUnavailable):
        store_of(path).put_if_absent(path, b"ours")
    assert there(path, prefix) == b"ours"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.BUSY])
def test_a_server_that_stumbles_once_is_asked_again(
    path: ObjectPath, proxy: FaultProxy, fault: Fault
) -> None:
    stumbled: set[str] = set()

    def once(request: Request) -> Fault:
        if request.method in stumbled:
            return Fault.NONE
        stumbled.add(request.method)
        return fault

    proxy.rule = once
    store = store_of(path)
    store.put(path, b"1234")
    assert (store.read(path), store.read_range(path, 1, 2)) == (b"1234", b"23")
    assert store.exists(path)
    assert store.names(path.parent) == ["0.json"]
    assert stumbled == {"PUT", "GET", "HEAD"}


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.CONFLICT])
def test_a_server_that_stays_away_is_no_missing_file(
    path: ObjectPath, proxy: FaultProxy, fault: Fault
) -> None:
    store = store_of(path)
    store.put(path, b"x")

    def create() -> None:
        with store.create(path.parent / "1.parquet") as file:
            file.write(b"rows")

    proxy.rule = lambda _: fault
    for ask in (
        create,
        lambda: store.read(path),
        lambda: store.read_range(path, 0, 1),
        lambda: store.exists(path),
        lambda: store.names(path.parent),
        lambda: store.consecutive([path]),
        lambda: store.delete([path]),
        lambda: store.put(path, b"y"),
        lambda: store.parquet(path),
        lambda: store.missing(path.parent, [path]),
        lambda: store.share(path.parent, path.parent / "x", ["0.json"]),
    ):
        with pytest.raises(StoreUnavailable):
            ask()


@pytest.mark.parametrize("done", [0, 1, 2, 3, 4])
def test_a_folder_whose_removal_is_cut_short_is_gone_all_the_same(
    path: ObjectPath, proxy: FaultProxy, done: int
) -> None:
    store, folder = store_of(path), path.parent.parent
    for number in range(3):
        store.put(folder / "log" / f"{number}.json", b"old")
    before = len(proxy.requests)
    proxy.rule = lambda request: Fault.NONE if request.number <= before + done else Fault.BUSY
    with pytest.raises(StoreUnavailable):
        store.discard(folder, "log")
    proxy.rule = pass_all
    left = store.names(folder / "log")
    assert left == ([] if done > 1 else [f"{number}.json" for number in range(3)])
    # What looks for entries from one of them on sees no part of it either.
    assert len(store.consecutive([folder / "log" / "0.json"])) == (0 if done > 1 else 1)
    if done == 4:
        # The mark goes last: what is removed in several requests is hidden until the end of them.
        found = store.walk(folder, lambda _: True, lambda _: True)
        assert [file.path.name for file in found] == ["~discarded"]
    store.end_discard(folder, "log")
    if done > 1:
        store.put_if_absent(path, b"new")
        assert store.names(folder / "log") == ["0.json"]
