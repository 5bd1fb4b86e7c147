"""`headrace tail` and `headrace consume` at a relay that asks for a token and speaks TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.relay.server.settings import Role, Token
from headrace.testing.relay import served
from tests.certificates import Pair, self_signed
from tests.changelog.windows import OTHER, TABLE, window
from tests.client.logs import LogFolder

READER = Token("reports", "swordfish-of-reports", Role.READER)
PLACES = [(scn, order) for scn in (1, 2, 3) for order in range(4)]
COMMANDS = {
    "tail": ("--from", "oldest", "--upto", "newest", "--format", "json"),
    "consume": ("--upto", "newest"),
}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return self_signed(tmp_path / "known")


@pytest.fixture
def url(log: LogFolder, pair: Pair) -> Iterator[str]:
    log.register(TABLE, OTHER)
    log.append(*(window(scn, 2, tables=(OTHER, TABLE)) for scn in (1, 2, 3)))
    with served(
        {"shop": log.folder},
        heartbeat_s=0.1,
        tokens=(READER,),
        certificate=pair.certificate,
        key=pair.key,
    ) as at:
        assert at.startswith("https://")
        yield at


def called(command: str, url: str, *words: object, token: str | None = READER.secret) -> Result:
    what = ("ndjson",) if command == "consume" else ()
    given = [command, *what, url, *COMMANDS[command], *map(str, words)]
    return CliRunner().invoke(app, given, env={"HEADRACE_TOKEN": token}, catch_exceptions=False)


def refused(done: Result, name: str) -> str:
    """See that a command ended by a named error with a next step and without a secret, and return what it said."""
    assert done.exit_code == 2, done.output
    assert name in done.stderr
    assert "next step" in done.stderr
    assert "Traceback" not in done.output
    assert "swordfish" not in done.output
    assert done.stdout == ""
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_everything_comes_through_tls_to_who_has_a_token(
    command: str, url: str, pair: Pair
) -> None:
    done = called(command, url, "--ca", pair.certificate)
    assert done.exit_code == 0, done.output
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["scn"], line["ord"]) for line in told if "ord" in line] == PLACES
    assert READER.secret not in done.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("token", ["swordfish-of-nobody", None])
def test_without_a_known_token_nothing_comes(
    command: str, token: str | None, url: str, pair: Pair
) -> None:
    said = refused(called(command, url, "--ca", pair.certificate, token=token), "NotAllowed")
    assert "HEADRACE_TOKEN" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_relay_that_another_authority_vouches_for_is_not_believed(
    command: str, url: str, tmp_path: Path
) -> None:
    other = self_signed(tmp_path / "other")
    for words in (("--ca", other.certificate), ()):
        said = refused(called(command, url, *words), "RelayUnavailable")
        assert "its certificate is not believed" in said
        assert "--ca FILE" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_certificate_for_another_name_is_not_believed(
    command: str, log: LogFolder, tmp_path: Path
) -> None:
    pair = self_signed(tmp_path / "elsewhere", "DNS:relay.example.org")
    with served(
        {"shop": log.folder}, tokens=(READER,), certificate=pair.certificate, key=pair.key
    ) as url:
        said = refused(called(command, url, "--ca", pair.certificate), "RelayUnavailable")
    assert "127.0.0.1" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_an_authority_that_is_none_is_named(command: str, url: str, tmp_path: Path) -> None:
    for file in (tmp_path / "none.pem", tmp_path / "empty.pem"):
        (tmp_path / "empty.pem").touch()
        said = refused(called(command, url, "--ca", file), "ConfigError")
        assert f"--ca: {file} cannot be used" in said
