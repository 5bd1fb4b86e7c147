"""The commands that talk to a control plane: they do all that its API does, and print tables or JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from tests.control.asking import OPERATOR, TOKENS, VIEWER, served
from tests.control.planes import config_of, end_everything, environment
from tests.requirements import req


def call(*words: str, fails: bool = False) -> Result:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert (done.exit_code == 2) is fails, done.output
    return done


def told(*words: str) -> Any:
    return json.loads(call(*words, "--json").stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two files of replicators, and somewhere else to be."""
    (tmp_path / "here").mkdir()
    for name in ("shop", "billing"):
        document = {"name": name, **config_of()}
        (tmp_path / "here" / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "here"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    try:
        with served(tmp_path) as (_, url):
            monkeypatch.setenv("HEADRACE_SERVER", url)
            yield url
    finally:
        end_everything(tmp_path)


@req("C76")
def test_a_replicator_lives_by_commands(server: str, folder: Path) -> None:
    assert "no replicator in default" in call("replicators").stdout
    made = told("deploy", str(folder / "shop.yaml"))
    assert made["state"] == "DEPLOYED"
    assert told("start", "shop", "--wait")["state"] == "RUNNING"
    assert told("pause", "shop", "--wait")["state"] == "PAUSED"
    assert told("resume", "shop", "--wait")["state"] == "RUNNING"
    call("deploy", str(folder / "billing.yaml"), "--start", "--wait")
    listed = call("replicators").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["billing", "RUNNING"],
        ["shop", "RUNNING"],
    ]
    shown = told("replicators", "shop")
    # A relative path begins beside the file, as with `headrace run`.
    assert shown["config"]["target"]["path"] == str(folder / "lake")
    assert "shop  RUNNING  postgres → delta" in call("replicators", "shop").stdout
    assert call("status", "shop").stdout == call("replicators", "shop").stdout
    assert told("status", "shop").keys() == shown.keys()
    # A name where only a file goes.
    assert "headrace api" in call("resync", "shop", fails=True).output
    assert told("logs", "shop") == {"process": "run", "lines": []}
    assert told("stop", "shop", "--wait")["state"] == "STOPPED"
    assert told("delete", "shop", "--source", "leave", "--wait")["state"] == "DELETED"
    assert [one["name"] for one in told("replicators")] == ["billing"]
    assert [line["what"] for line in told("audit", "--limit", "2")] == ["delete", "stop"]
    assert "delete" in call("audit").stdout


def test_drafts_by_commands(server: str, folder: Path) -> None:
    made = told("draft", "put", "d1", str(folder / "shop.yaml"), "--label", "The shop")
    assert made["label"] == "The shop"
    assert "The shop" in call("draft", "list").stdout
    assert told("draft", "show", "d1") == made == told("draft", "list")[0]
    assessed = told("draft", "assess", "d1")
    assert assessed["connectivity"], "nobody answers at db.internal"
    assert told("deploy", "--draft", "d1", "--name", "shop")["state"] == "DEPLOYED"
    assert told("draft", "delete", "d1") == {"deleted": "d1"}
    assert "no draft d1" in call("draft", "show", "d1", fails=True).output


def test_namespaces_by_commands(server: str, folder: Path) -> None:
    call("namespace", "make", "sales")
    call("deploy", str(folder / "shop.yaml"), "--namespace", "sales")
    assert told("namespace", "list") == ["default", "sales"]
    assert [one["name"] for one in told("replicators", "-n", "sales")] == ["shop"]
    assert told("replicators") == []
    assert "has 1 replicator." in call("namespace", "delete", "sales", fails=True).output


def test_one_that_fails_ends_the_wait_with_its_reason(server: str, folder: Path) -> None:
    document = {"name": "shop", **config_of("fail")}
    (folder / "shop.yaml").write_text(yaml.safe_dump(document))
    failed = call("deploy", str(folder / "shop.yaml"), "--start", "--wait", fails=True)
    assert "simulated: the slot is gone" in failed.output
    assert "headrace logs shop" in failed.output
    assert "simulated: the slot is gone" in call("replicators").stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("start", "nobody"), "no replicator nobody"),
        (("deploy",), "either FILE or --draft"),
        (("deploy", "--draft", "d"), "--name NAME"),
        (("deploy", "missing.yaml"), "cannot be read"),
        (("start", "shop", "--server", "nonsense"), "no address of a control plane"),
        (("start", "shop", "--server", "http://127.0.0.1:1"), "gives no answer"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(
    server: str, words: tuple[str, ...], named: str
) -> None:
    failed = call(*words, fails=True)
    assert named in failed.output
    assert "next step" in failed.output
    assert "Traceback" not in failed.output


def test_a_running_one_that_gets_another_configuration_is_waited_for(
    server: str, folder: Path
) -> None:
    file = str(folder / "shop.yaml")
    assert told("deploy", file, "--wait")["state"] == "DEPLOYED"
    told("start", "shop", "--wait")
    assert told("deploy", file)["state"] == "STARTING"
    assert told("deploy", file, "--wait")["state"] == "RUNNING"


def test_what_reads_a_file_finds_that_of_a_name(server: str, folder: Path) -> None:
    told("deploy", str(folder / "shop.yaml"))
    for command in ("verify", "maintain"):
        assert "is not on this machine" in call(command, "shop", fails=True).output
    told("start", "shop", "--wait")
    assert "SourceUnavailable" in call("verify", "shop", fails=True).output
    assert "nothing to do" in call("maintain", "shop").output


def test_something_else_that_answers_is_not_taken_for_a_control_plane() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{other.server_address[1]}"
        failed = call("replicators", "--server", url, fails=True)
        other.shutdown()
        thread.join()
    assert "no control plane" in failed.output


def test_the_token_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, tokens=TOKENS) as (_, url):
        monkeypatch.setenv("HEADRACE_SERVER", url)
        monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
        assert "NotAllowed" in call("replicators", fails=True).output
        monkeypatch.setenv("HEADRACE_TOKEN", VIEWER.secret)
        call("replicators")
        assert "operator" in call("start", "shop", fails=True).output
        monkeypatch.setenv("HEADRACE_TOKEN", OPERATOR.secret)
        assert "no replicator shop" in call("start", "shop", fails=True).output


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "caffè"),
        ("stop", "a b?c#d"),
        ("draft", "show", "naïve"),
        ("namespace", "make", "caffè"),
        ("replicators", "--namespace", "\udcff"),
        ("metrics", "shop", "--namespace", "\udcff"),
        ("activity", "shop", "--table", "\udcff.t"),
        ("runtime", "events", "a\udcff"),
    ],
)
def test_a_name_of_any_letters_reaches_the_server_which_says_what_is_wrong(
    server: str,
    words: tuple[str, ...],
) -> None:
    said = call(*words, fails=True).stderr
    assert "ControlUnavailable" not in said
    assert "next step" in said


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:abc",
        "http://[::1",
        "http://a..b:80",
        f"http://{'a' * 70}",
    ],
)
def test_an_address_that_is_none_is_named(url: str) -> None:
    said = call("replicators", "--server", url, fails=True).stderr
    assert "is no address of a control plane" in said


@pytest.mark.parametrize("token", ["t\u00f6k\u20ac", "token\n", "to\x7fken"])
def test_a_token_that_no_header_takes_is_named_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    said = call("replicators", "--server", "http://127.0.0.1:1", fails=True).stderr
    assert "HEADRACE_TOKEN holds a character" in said
    assert token not in said


@pytest.mark.parametrize("value", ["2026-01-31", ".nan", "!!binary aGk="])
@pytest.mark.parametrize("words", [("deploy",), ("draft", "put", "d1")])
def test_a_value_that_json_has_not_is_refused_before_it_is_sent(
    words: tuple[str, ...], value: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"name: shop\nsource: {{since: {value}}}\n")
    said = call(*words, str(file), "--server", "http://127.0.0.1:1", fails=True).stderr
    assert "holds a value that cannot be sent" in said


def test_a_file_whose_folder_is_no_text_is_refused(
    server: str,
    folder: Path,
) -> None:
    odd = folder / "\udcff"
    odd.mkdir()
    (folder / "shop.yaml").rename(odd / "shop.yaml")
    for command in ("deploy", "run", "status"):
        said = call(command, str(odd / "shop.yaml"), fails=True).stderr
        assert "is no text in UTF-8" in said
