"""What is found out about a store before anything stands on it, and how it is named."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Retry, StoreRefused, StoreUnavailable, StoreUnfit
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.store import Bucket, ObjectPath, check_store, located, store_of
from headrace.testing.fault_proxy import Fault, FaultProxy
from headrace.testing.object_store import ObjectServer

SECRET = "swordfish"


@pytest.mark.object_store
def test_a_good_store_is_left_as_it_was(prefix: ObjectPath) -> None:
    check_store(prefix)
    assert not list(store_of(prefix).walk(prefix, lambda _: True, lambda _: True))


def test_a_folder_needs_no_check(tmp_path: Path) -> None:
    check_store(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.object_store
def test_a_server_that_passes_over_the_condition_is_refused(
    object_server: ObjectServer, proxy: FaultProxy, prefix: ObjectPath
) -> None:
    proxy.rule = lambda _: Fault.NO_CONDITION
    with pytest.raises(StoreUnfit, match=r"If-None-Match: \*.*two writers") as caught:
        check_store(ObjectPath(object_server.bucket(proxy.endpoint), prefix.key))
    assert caught.value.retry is Retry.MANUAL
    assert not list(store_of(prefix).walk(prefix, lambda _: True, lambda _: True))


@pytest.mark.object_store
@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"name": "nowhere"}, StoreRefused, "There is no bucket nowhere at http"),
        ({"secret_access_key": SECRET}, StoreRefused, "refuses us (SignatureDoesNotMatch)"),
        ({"access_key_id": SECRET}, StoreRefused, "refuses us"),
        ({"region": "mars-1"}, StoreRefused, "refuses us"),
        ({"secret_access_key": None}, StoreRefused, "incomplete (SecretAccessKey)"),
        ({"endpoint": "http://127.0.0.1:1"}, StoreUnavailable, "(no connection)"),
    ],
)
def test_what_is_wrong_is_named_without_secrets(
    object_server: ObjectServer,
    wrong: dict[str, str],
    kind: type[HeadraceError],
    text: str,
) -> None:
    bucket = replace(object_server.bucket(timeout_s=10, retries=0), **wrong)  # type: ignore[arg-type]
    with pytest.raises(kind, match=re.escape(text)) as caught:
        check_store(ObjectPath(bucket, "x"))
    assert caught.value.next_step
    for secret in (SECRET, object_server.bucket().secret_access_key):
        assert str(secret) not in f"{caught.value}{bucket!r}"


@pytest.mark.object_store
def test_apply_ends_before_spark_starts(tmp_path: Path, object_server: ObjectServer) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'], url: 'postgresql://user@127.0.0.1:1/db'}\n"
        "target: {type: delta, path: 's3://nowhere/x', store: "
        f"{{endpoint: '{object_server.endpoint}', access_key_id: headrace-test, "
        "secret_access_key: swordfish-of-the-store}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "headrace.replicator.apply_process", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "StoreRefused: There is no bucket nowhere at" in done.stderr
    assert not StatePaths.of(load(file)).spark.exists()
    assert not list(tmp_path.rglob("checkpoints"))


def test_locations_are_what_they_say() -> None:
    bucket = Bucket("b", "http://e", secret_access_key=SECRET)
    place = located("s3://lake/a//b/", bucket)
    assert isinstance(place, ObjectPath)
    assert (str(place), place.name, str(place.parent)) == ("s3://lake/a/b", "b", "s3://lake/a")
    assert place.bucket == replace(bucket, name="lake")
    root = located("s3://lake")
    assert isinstance(root, ObjectPath)
    assert (str(root / "x" / Path("a=1/y")), root.name) == ("s3://lake/x/a=1/y", "lake")
    assert (root / ".").key == root.key == ""
    assert located("lake/x") == Path("lake/x")
    with pytest.raises(ValueError, match="without a bucket"):
        located("s3:///x")
    assert SECRET not in repr(place)
