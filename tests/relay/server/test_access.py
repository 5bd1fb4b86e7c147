"""Tokens, roles and TLS: who may ask, and that nobody overhears it."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.errors import ConfigError
from headrace.relay.server.access import Access
from headrace.relay.server.serve import check_tls
from headrace.relay.server.settings import RelaySettings, Role, Token
from headrace.testing.relay import served
from tests.certificates import self_signed
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.waiting import until

READER = Token("reports", "swordfish-of-readers", Role.READER)
ADMIN = Token("ops", "swordfish-of-admins", Role.ADMIN)


@pytest.fixture
def guarded(folder):
    with served({"shop": folder}, tokens=(READER, ADMIN)) as url:
        yield url


@pytest.mark.parametrize("token", ["", "wrong", "swordfish-of-reader", "swordfish-of-readers2"])
def test_without_a_known_token_nothing_is_answered_but_health(writer, guarded, token):
    synced(writer, window(1))
    for path in (
        "/sources",
        "/stream?source=shop&mode=pull",
        "/metrics",
        "/register?source=shop",
        "/nothing",
    ):
        answer = ask(guarded, path, token=token)
        assert (answer.status, answer.error["type"]) == (401, "NotAllowed")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "shop" not in answer.error["message"]
    assert ask(guarded, "/admin/shutdown", post={}, token=token).status == 401
    assert ask(guarded, "/healthz", token=token).status == 200


def test_a_reader_may_read_and_no_more(writer, guarded):
    synced(writer, window(1))
    assert scns(pulled(guarded, after=0, token=READER.secret)) == [1]
    for command in ("pause", "resume", "dump", "retention", "shutdown"):
        answer = ask(guarded, f"/admin/{command}", post={"source": "shop"}, token=READER.secret)
        assert (answer.status, answer.error["type"]) == (403, "NotAllowed")
    assert ask(guarded, "/sources", token=ADMIN.secret).status == 200


def test_the_scheme_of_a_token_is_needed(writer, guarded):
    for header in (READER.secret, f"Basic {READER.secret}", "Bearer", "Bearer "):
        assert ask(guarded, "/sources", headers={"authorization": header}).status == 401
    assert (
        ask(guarded, "/sources", headers={"authorization": f"bearer {READER.secret}"}).status == 200
    )


def test_roles_are_told_apart_and_secrets_are_not_shown():
    access = Access((READER, ADMIN))
    assert access.role(f"Bearer {READER.secret}") is Role.READER
    assert access.role(f"Bearer {ADMIN.secret}") is Role.ADMIN
    assert access.role(None) is None
    assert Access(()).role(None) is Role.ADMIN
    shown = repr(RelaySettings((), tokens=(READER, ADMIN)))
    assert "swordfish" not in shown
    assert "reports" in shown


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "relay.internal", ""])
def test_beyond_this_machine_a_relay_asks_for_tokens_or_does_not_start(host):
    with pytest.raises(ConfigError, match=r"relay\.listen.*token"):
        RelaySettings((), host).validate()
    RelaySettings((), host, tokens=(READER,)).validate()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.10"])
def test_on_this_machine_it_needs_none(host):
    RelaySettings((), host).validate()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "relay.pem", tmp_path / "relay.key"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-keyout",
                key,
                "-out",
                certificate,
            ),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_with_a_certificate_the_stream_is_encrypted(writer, folder, pair):
    certificate, key = pair
    synced(writer, *(window(scn) for scn in range(1, 30)))
    with served({"shop": folder}, certificate=certificate, key=key, tokens=(READER,)) as url:
        assert url.startswith("https://")
        with stream(url, after=0, token=READER.secret) as frames:
            assert scns(frames.until(29)) == list(range(1, 30))
            synced(writer, window(30))
            assert scns(frames.until(30)) == [30]
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(url.replace("https", "http"), "/sources")


def shown_to(url: str) -> bytes:
    """Return the certificate that a new connection is shown."""
    parts = urlsplit(url)
    return ssl.get_server_certificate((str(parts.hostname), parts.port or 0)).encode()


def test_a_certificate_that_is_renewed_on_disk_is_shown_to_who_comes_next(
    writer, folder, tmp_path, caplog
):
    def refused() -> int:
        return sum("cannot be used" in record.getMessage() for record in caplog.records)

    synced(writer, window(1))
    old, new = self_signed(tmp_path / "old"), self_signed(tmp_path / "new")
    certificate, key = old
    with served({"shop": folder}, certificate=certificate, key=key) as url:
        before = shown_to(url)
        with stream(url, after=0) as frames:
            assert scns(frames.until(1)) == [1]
            # One file at a time, and one that is no certificate at first.
            certificate.write_text("none")
            until(lambda: refused() == 1, "it is looked at")
            assert shown_to(url) == before
            new.key.replace(key)
            until(lambda: refused() == 2, "they are looked at together")
            assert shown_to(url) == before
            new.certificate.replace(certificate)
            until(lambda: shown_to(url) != before, "the new certificate")
            synced(writer, window(2))
            assert scns(frames.until(2)) == [2]


def test_a_certificate_that_cannot_be_used_is_named(tmp_path, pair):
    certificate, key = pair
    check_tls(RelaySettings((), certificate=certificate, key=key))
    for bad in ((tmp_path / "none", key), (certificate, certificate), (key, key)):
        with pytest.raises(ConfigError, match=r"relay\.tls"):
            check_tls(RelaySettings((), certificate=bad[0], key=bad[1]))
