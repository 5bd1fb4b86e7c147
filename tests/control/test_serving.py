"""How ``headrace serve`` is told who may ask and where it listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError, ControlUnavailable
from headrace.replicator.api.serve import Listening, known_of, listen
from headrace.replicator.control.reconcile import Limits
from headrace.replicator.serving import plane_settings, tokens_of


def people(folder: Path, text: str) -> Path:
    path = folder / "people.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("address", ["0.0.0.0:8070", "192.0.2.1:1", "db.internal:8070", "[::]:1"])
def test_what_would_be_open_to_everybody_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="asks for no token"):
        Listening.parse(address, None)
    monkeypatch.setenv("ADA", "a-token-of-adas-own")
    config = tokens_of(people(tmp_path, "tokens: [{name: ada, token: '${env:ADA}'}]"))
    assert Listening.parse(address, config).port == int(address.rpartition(":")[2])


@pytest.mark.parametrize("address", ["8070", "localhost:", "localhost:http", "127.0.0.1:99999"])
def test_an_address_that_does_not_read_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        Listening.parse(address, None)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_have_no_address_is_named(host: str) -> None:
    with pytest.raises(ControlUnavailable, match="no such host"):
        listen(Listening(host, 8070))


def test_an_address_that_is_taken_is_named() -> None:
    with listen(Listening(port=0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ControlUnavailable, match=f"127.0.0.1:{port}"):
            listen(Listening(port=port))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tokens: []", "at least one token"),
        ("tokens: [{name: ada, token: short}]", "at least 16 characters"),
        ("tokens: [{name: ada, token: '${env:UNSET_TOKEN}'}]", "UNSET_TOKEN is not set"),
        ("tokens: [{name: ada, token: sixteen-characters, role: king}]", "tokens.0..role|role"),
        ("token: x", "unknown name"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_says_why(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        tokens_of(people(tmp_path, text))
    assert "sixteen-characters" not in str(caught.value)
    assert "headrace serve --tokens" in caught.value.next_step


def test_secrets_of_the_control_plane_are_told_from_those_of_replicators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADA_TOKEN", "a-token-of-adas-own")
    monkeypatch.setenv("STATE_PASSWORD", "swordfish")
    file = people(tmp_path, "tokens: [{name: ada, token: '${env:ADA_TOKEN}', role: admin}]")
    url = "postgresql://u:${env:STATE_PASSWORD}@h/d"
    settings = plane_settings(tmp_path, url, file, Limits())
    assert settings.hidden == {"env:ADA_TOKEN", "env:STATE_PASSWORD", "env:HEADRACE_TOKEN"}
    assert settings.database == "postgresql://u:swordfish@h/d"
    assert "swordfish" not in repr(settings)
    known = known_of(tokens_of(file))
    person = known.person("Bearer a-token-of-adas-own")
    assert person is not None
    assert person.name == "ada"
    assert "adas-own" not in repr(known.__dict__)


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    """Its processes could not be told from those of others."""
    with pytest.raises(ConfigError, match="--state"):
        plane_settings(tmp_path / "\udcff", None, None, Limits())


def test_a_password_on_the_command_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="command line") as caught:
        plane_settings(tmp_path, "postgresql://u:swordfish@h/d", None, Limits())
    assert "swordfish" not in str(caught.value)
    with pytest.raises(ConfigError, match="UNSET_PASSWORD is not set"):
        plane_settings(tmp_path, "postgresql://u:${env:UNSET_PASSWORD}@h/d", None, Limits())
