"""Secrets by reference: from the environment, a file of the secrets folder, or a keyring."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.replicator.config import PostgresConfig
from headrace.replicator.config_file import load
from headrace.replicator.secret_references import (
    FOLDER_VARIABLE,
    Reference,
    SecretMissing,
    parse,
    references_in,
    written,
)
from tests.keyrings import plain_keyring


@pytest.mark.parametrize(
    ("inner", "meant"),
    [
        ("env:A_1", Reference("env", "A_1")),
        ("urlenv:A", Reference("env", "A", escaped=True)),
        ("file:shop-db.password", Reference("file", "shop-db.password")),
        ("urlfile:a", Reference("file", "a", escaped=True)),
        ("keyring:shop.db", Reference("keyring", "shop.db")),
        ("urlkeyring:a", Reference("keyring", "a", escaped=True)),
        ("env:1", None),
        ("env:a-b", None),
        ("file:", None),
        ("file:../etc/passwd", None),
        ("file:/etc/passwd", None),
        ("file:a/b", None),
        ("file:.hidden", None),
        ("vault:a", None),
        ("secure(a)", None),
    ],
)
def test_what_is_a_reference(inner: str, meant: Reference | None) -> None:
    assert parse(inner) == meant


def test_each_kind_is_found_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("from @ file\n")
    environment = {"SHOP": "from @ env", FOLDER_VARIABLE: str(tmp_path)}
    with plain_keyring(tmp_path / "ring", shop="from @ ring"):
        for kind, name in (("env", "SHOP"), ("file", "shop"), ("keyring", "shop")):
            said = "ring" if kind == "keyring" else kind
            assert Reference(kind, name).value(environment) == f"from @ {said}"
            escaped = Reference(kind, name, escaped=True)
            assert escaped.value(environment) == f"from%20%40%20{said}"
            assert written(escaped, environment) >= {f"from @ {said}", f"from%20%40%20{said}"}


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("env", "UNSET", "UNSET is not set"),
        ("file", "none", r"none cannot be read .*HEADRACE_SECRETS"),
        ("file", "folder", "folder cannot be read"),
        ("file", "binary", "no UTF-8 text"),
        ("file", "large", "more than 65,536 bytes"),
        ("keyring", "none", "keyring set headrace none"),
    ],
)
def test_one_that_is_not_there_is_named_with_what_to_do(
    tmp_path: Path, kind: str, name: str, told: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("x" * 65_537)
    with plain_keyring(tmp_path / "ring"), pytest.raises(SecretMissing, match=told):
        Reference(kind, name).value({FOLDER_VARIABLE: str(tmp_path)})
    with plain_keyring(tmp_path / "ring"):
        assert written(Reference(kind, name), {FOLDER_VARIABLE: str(tmp_path)}) == set()


def test_references_are_found_wherever_they_are() -> None:
    document = {"a": ["x${env:A}y${urlfile:b}", {"c": "${keyring:c}"}], "d": 1, "e": "${other}"}
    assert [one.place for one in references_in(document)] == ["env:A", "file:b", "keyring:c"]


def test_a_file_of_headrace_run_takes_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pw").write_text("p@ss\n")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    file = tmp_path / "shop.yaml"
    text = (
        "{{name: shop, target: {{type: delta, path: ./lake}},"
        " source: {{type: postgres, tables: ['public.*'], url: 'postgresql://u:{}@h/d'}}}}\n"
    )
    file.write_text(text.format("${urlfile:pw}"))
    source = load(file).source
    assert isinstance(source, PostgresConfig)
    assert source.url.get_secret_value() == "postgresql://u:p%40ss@h/d"
    file.write_text(text.format("${file:gone}"))
    with pytest.raises(ConfigError, match=r"source\.url: the secret gone cannot be read"):
        load(file)
    file.write_text(text.format("${vault:x}"))
    with pytest.raises(ConfigError, match=r"unknown reference; write \$\{env:NAME\}"):
        load(file)
