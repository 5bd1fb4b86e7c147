"""The Delta jars are found, checked and asked for by name; no network and no Spark here."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.spark import jars
from headrace.spark.jars import Jar, JarsUnavailable, delta_jars, locked_jars

ONE = Jar(hashlib.sha256(b"one").hexdigest(), "org.example:one_2.13:1.0")
TWO = Jar(hashlib.sha256(b"two").hexdigest(), "org.example:two:2.0")


@pytest.fixture(autouse=True)
def _two_small_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "locked_jars", lambda: [ONE, TWO])
    monkeypatch.setenv(jars.CACHE_SETTING, str(tmp_path / "cache"))
    monkeypatch.delenv(jars.JARS_FOLDER_SETTING, raising=False)
    monkeypatch.delenv(jars.REPOSITORY_SETTING, raising=False)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Stand in for Spark's launcher: it brings both jars; returns the environments it was given."""
    seen: list[dict[str, str]] = []

    def launch(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        seen.append(env)
        setting = next(word for word in command if word.startswith("spark.jars.ivy="))
        folder = Path(setting.partition("=")[2]) / "jars"
        folder.mkdir(parents=True)
        (folder / "org.example_one_2.13-1.0.jar").write_bytes(b"one")
        (folder / "org.example_two-2.0.jar").write_bytes(b"two")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", launch)
    return seen


def test_the_lock_names_exactly_what_delta_needs() -> None:
    assert [jar.file_name for jar in locked_jars()] == [
        "delta-spark_4.2_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
    ]
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in locked_jars())


def test_jars_are_fetched_once_and_then_only_looked_at(
    launches: list[dict[str, str]], tmp_path: Path
) -> None:
    first = delta_jars()
    assert [path.read_bytes() for path in first] == [b"one", b"two"]
    assert delta_jars() == first
    assert len(launches) == 1
    assert sorted(p.name for p in (tmp_path / "cache" / "jars").glob("[!.]*")) == [
        "one_2.13-1.0.jar",
        "two-2.0.jar",
    ]


def test_a_damaged_jar_in_the_cache_is_fetched_again(launches: list[dict[str, str]]) -> None:
    delta_jars()[0].write_bytes(b"torn")
    assert delta_jars()[0].read_bytes() == b"one"
    assert len(launches) == 2


def test_a_users_maven_cache_stays_out_and_a_repository_can_be_named(
    launches: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.REPOSITORY_SETTING, "https://mirror.example/maven")
    delta_jars()
    assert "-Duser.home=" in launches[0]["SPARK_SUBMIT_OPTS"]
    assert str(Path.home()) not in launches[0]["SPARK_SUBMIT_OPTS"]
    assert launches[0]["DEFAULT_ARTIFACT_REPOSITORY"] == "https://mirror.example/maven"


@pytest.mark.usefixtures("launches")
def test_a_jar_that_is_not_the_known_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Jar(hashlib.sha256(b"other").hexdigest(), TWO.coordinate)
    monkeypatch.setattr(jars, "locked_jars", lambda: [ONE, other])
    with pytest.raises(JarsUnavailable, match=r"org\.example:two:2\.0 is not the file"):
        delta_jars()


def refusal(text: str) -> Callable[..., Any]:
    """Return a resolver that fails with the given report."""
    return lambda command, **_: subprocess.CompletedProcess(command, 1, "", text)


def test_without_a_network_the_error_names_jar_and_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\t\tmodule not found: org.example#two;2.0\nat org.apache.spark.Deep.stack(1)\n"
    monkeypatch.setattr(subprocess, "run", refusal(text))
    assert jars.main([]) == 1
    told = capsys.readouterr().err
    assert "org.example:two:2.0 could not be fetched" in told
    assert "module not found" in told
    assert "HEADRACE_JARS" in told
    assert "Deep.stack" not in told


def test_a_certificate_that_java_does_not_trust_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Server access error: PKIX path building failed\n\t\tmodule not found: org.example#two;2.0\n"
    monkeypatch.setattr(subprocess, "run", refusal(text))
    assert jars.main([]) == 1
    assert "keytool" in capsys.readouterr().err


def test_a_folder_of_jars_serves_closed_networks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(jars.JARS_FOLDER_SETTING, str(tmp_path))
    (tmp_path / ONE.file_name).write_bytes(b"one")
    with pytest.raises(JarsUnavailable, match=r"two-2\.0\.jar is missing"):
        delta_jars()
    (tmp_path / TWO.file_name).write_bytes(b"not two")
    with pytest.raises(JarsUnavailable, match="its SHA-256 differs"):
        delta_jars()
    (tmp_path / TWO.file_name).write_bytes(b"two")
    assert delta_jars() == [tmp_path / ONE.file_name, tmp_path / TWO.file_name]
