"""Random secrets in every field that takes one: they are nowhere to be seen, and nothing keeps them."""

from __future__ import annotations

import copy
import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, quote_plus

import pytest
from pydantic import BaseModel, SecretStr

from headrace.errors import ConfigError
from headrace.replicator.config import Config
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.references import refuse_secrets
from headrace.replicator.secret_references import FOLDER_VARIABLE
from tests.control.asking import ADMIN, TOKENS, Asking, served
from tests.control.contracts.calls import CALLS
from tests.control.contracts.document import operations
from tests.control.planes import end_everything, environment
from tests.keyrings import plain_keyring
from tests.requirements import req
from tests.waiting import until

NS = "/v1/contexts/default"
URL = "postgresql://u:{}@127.0.0.1:1/d?connect_timeout=1"
NAMES = {"target.store.access_key_id"}
"""Fields whose values are names, and stand in the clear like one; what goes with them does not."""


def document(kind: str, **values: str) -> dict[str, Any]:
    """Return a configuration with something in each field that takes a secret.

    Args:
        kind: of it; no one configuration has all fields.
        values: by field, ``__`` for a dot.
    """
    source = {
        "type": "postgres",
        "url": URL.format(values.get("source__url", "")),
        "tables": ["public.*"],
    }
    if kind == "relay":
        token = values["source__token"]
        source = {"type": "relay", "urls": ["http://127.0.0.1:1"], "token": token}
    if kind == "warehouse":
        target: dict[str, Any] = {"type": "postgres", "url": URL.format(values["target__url"])}
    else:
        store = {
            name: values[f"target__store__{name}"]
            for name in ("access_key_id", "secret_access_key", "session_token")
        }
        # Nobody answers there, and nobody needs to be waited for.
        where = {"endpoint": "http://127.0.0.1:1", "timeout_s": 0.2}
        target = {"type": "delta", "path": "s3://bucket/lake", "store": {**store, **where}}
    made = {"source": source, "target": target}
    if kind == "bucket":
        made["relay"] = {"tokens": [{"name": "a", "token": values["relay__tokens__token"]}]}
        hook, signed = values["objective__webhook"], values["objective__secret"]
        made["objective"] = {"webhook": hook, "secret": signed}
        hook, signed = values["activity__drop__webhook"], values["activity__drop__secret"]
        made["activity"] = {"drop": {"webhook": hook, "secret": signed}}
        made["lineage"] = {"url": values["lineage__url"], "token": values["lineage__token"]}
    return made


STORE = [
    f"target__store__{name}" for name in ("access_key_id", "secret_access_key", "session_token")
]
FIELDS = {
    "bucket": [
        "source__url", *STORE, "relay__tokens__token", "objective__webhook", "objective__secret",
        "activity__drop__webhook", "activity__drop__secret", "lineage__url", "lineage__token",
    ],
    "warehouse": ["source__url", "target__url"],
    "relay": ["source__token", *STORE],
}  # fmt: skip


def fields_of(annotation: Any, place: str = "") -> Iterator[str]:
    """Yield the places below a type that take a secret."""
    if annotation is SecretStr:
        yield place
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from fields_of(field.annotation, f"{place}.{name}".lstrip("."))
    else:
        for part in get_args(annotation):
            yield from fields_of(part, place)


def test_every_field_that_takes_a_secret_is_tried() -> None:
    tried = {name.replace("__", ".") for names in FIELDS.values() for name in names}
    assert tried == set(fields_of(Config))


@pytest.mark.parametrize(
    "held", ["u:swordfish@h/x", "h/x?token=swordfish", "h/x?api_key=swordfish", "h/swordfish"]
)
def test_an_address_that_holds_a_secret_is_refused(held: str) -> None:
    with pytest.raises(ConfigError, match=r"lineage\.url") as refused:
        refuse_secrets({"lineage": {"url": f"https://{held}"}})
    assert "swordfish" not in str(refused.value)


def forms(value: str) -> list[str]:
    """Return a secret as it is, and as a URL's parts, a form and JSON have it."""
    escaped = (quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1])
    return list(dict.fromkeys((value, *escaped)))


class Secrets:
    """Random secrets, put where references find them: environment, files, a keyring, in turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values: dict[str, str] = {}
        self.environment = {**environment(), FOLDER_VARIABLE: str(folder)}
        self.ring: dict[str, str] = {}

    def reference(self, field: str) -> str:
        """Make one, and return what stands for it."""
        # Signs that a URL, a form or JSON escapes, so that each form is another; a webhook is a URL itself.
        value = f'{secrets.token_urlsafe(18)}@/ %"{secrets.token_urlsafe(6)}'
        if field.endswith(("webhook", "lineage__url")):
            value = f"http://127.0.0.1:1/{secrets.token_urlsafe(24)}"
        number = len(self.values)
        name = f"{field.replace('__', '-')}-{number}"
        self.values[name] = value
        url = "url" if field.endswith("__url") and field != "lineage__url" else ""
        if number % 3 == 0:
            self.environment[f"SECRET_{number}"] = value
            return f"${{{url}env:SECRET_{number}}}"
        if number % 3 == 1:
            (self.folder / name).write_text(value + "\n")
            return f"${{{url}file:{name}}}"
        self.ring[name] = value
        return f"${{{url}keyring:{name}}}"

    def seen_in(self, data: str | bytes) -> list[str]:
        """Return the names of those that stand in a text, in any form that a URL or JSON gives them."""
        text = data if isinstance(data, bytes) else data.encode()
        return [
            name
            for name, value in self.values.items()
            for form in forms(value)
            if form.encode() in text
        ]


@pytest.fixture
def hidden(tmp_path: Path) -> Secrets:
    (tmp_path / "secrets").mkdir()
    return Secrets(tmp_path / "secrets")


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind, names in FIELDS.items() for field in names
     if field.replace("__", ".") not in NAMES],
)  # fmt: skip
def test_a_secret_in_clear_is_refused_everywhere_and_repeated_nowhere(
    tmp_path: Path, hidden: Secrets, kind: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given = {name: hidden.reference(name) for name in FIELDS[kind]}
    clear = next(
        value
        for name, value in hidden.values.items()
        if name.startswith(field.replace("__", "-") + "-")
    )
    given[field] = (
        quote(clear, safe="") if field.endswith("__url") and field != "lineage__url" else clear
    )
    config = document(kind, **given)
    with served(tmp_path) as (_, url):
        ask = Asking(url)
        table = {"dBTable": {"table": "t"}, "deltaConfig": config}
        for method, path, body in (
            ("PUT", f"{NS}/drafts/d", {"config": config}),
            ("PUT", f"{NS}/replicators/shop", {"config": config, "start": True}),
            ("POST", f"{NS}/assessPipeline", {"config": config}),
            ("POST", f"{NS}/assessTable", table),
        ):
            answer = ask(method, path, body)
            assert (answer.status, answer.error["type"]) == (422, "ConfigError")
            assert "in clear" in answer.error["message"]
            assert hidden.seen_in(answer.text) == []
        assert hidden.seen_in(ask("GET", "/v1/audit").text + caplog.text) == []
    for file in (tmp_path / "state").rglob("*"):
        assert not file.is_file() or hidden.seen_in(file.read_bytes()) == [], file


@req("C-9")
def test_secrets_by_reference_are_nowhere_to_be_seen(
    tmp_path: Path,
    hidden: Secrets,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Answers of every page, refusals, logs, state, command lines: what is kept is references, so none is encrypted."""
    caplog.set_level(logging.DEBUG)
    configs, own = {}, {}
    for kind, names in FIELDS.items():
        before = set(hidden.values)
        configs[kind] = document(kind, **{name: hidden.reference(name) for name in names})
        own[kind] = [hidden.values[name] for name in hidden.values.keys() - before]
    for name, value in hidden.environment.items():
        monkeypatch.setenv(name, value)
    said = []
    try:
        with (
            plain_keyring(tmp_path / "secrets" / "ring", **hidden.ring),
            served(tmp_path, tokens=TOKENS) as (plane, url),
        ):
            ask = Asking(url, ADMIN.secret)
            for kind, config in configs.items():
                said += _lived(ask, plane, kind, config, hidden, own[kind])
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    assert hidden.seen_in(process.read_bytes()) == [], process
                except OSError:
                    continue
            kept = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
            found = {file.name for file in kept}
            assert {"control.db", "config-2.json", "run.log", "run.json"} <= found
            for file in kept:
                assert hidden.seen_in(file.read_bytes()) == [], file
    finally:
        end_everything(tmp_path)
    assert hidden.seen_in("\n".join(said)) == []
    assert hidden.seen_in(caplog.text) == []


def _lived(
    ask: Asking,
    plane: ControlPlane,
    kind: str,
    config: dict[str, Any],
    hidden: Secrets,
    own: list[str],
) -> list[str]:
    """Do everything with one configuration, and return what was answered."""
    path, draft = f"{NS}/replicators/{kind}", f"{NS}/drafts/{kind}"
    said = [ask("PUT", draft, {"label": kind, "config": config}).text]
    assert ask.one(draft)["config"] == config, "a draft comes back as it was put"
    ask.does("PUT", path, {"config": config, "start": True}, 201)
    ask.reaches("RUNNING", kind)
    row = plane.store.replicator("default", kind)
    # It is resolved where it is needed, else this test would see nothing.
    source = plane.folders.of(row).config(row).source
    resolved = getattr(source, "url", None) or getattr(source, "token", None)
    assert resolved is not None
    assert hidden.seen_in(resolved.get_secret_value())
    assert hidden.seen_in(repr(source)) == []
    log = plane.folders.of(row).log
    with log.open("a") as file:
        for value in own:
            file.write(f"a library says {' and '.join(forms(value))}!\n")
    shown = ask("GET", f"{path}/logs?lines=100").text
    assert "a library says ${" in shown
    # Also as whoever reads the answer has it: there the lines are escaped once more.
    said += [shown, *json.loads(shown)["lines"]]
    log.write_text("")
    world = {"name": kind, "draft": kind, "request": "none", "letter": "t@1", "config": config}
    for operation in operations().values():
        call = CALLS[operation.name]
        if call.streams or operation.name.startswith("delete") or operation.name == "get_logs":
            continue
        if kind == "relay" and operation.name in ("assess", "assess_one", "assess_table_of_draft"):
            # A relay that is away is asked for five seconds, each time; a draft's assessment does.
            continue
        where, body = call.filled(world)
        said.append(ask(operation.method, where, body).text)
        if operation.name == "deploy":
            # Its file comes once the process of before has ended, and never where it is stopped until then.
            until(plane.folders.of(row).file(2).exists, "the new configuration")
        if operation.takes_body:
            said.append(ask(operation.method, where, {**(body or {}), "nonsense": 1}).text)
            broken = copy.deepcopy(config)
            broken["target"]["nonsense"] = broken["source"].get("url", "")
            said.append(ask(operation.method, where, {"config": broken}).text)
    ask("DELETE", draft)
    ask("POST", f"{path}/stop")
    until(lambda: ask.one(path)["state"] == "STOPPED", "its end")
    return said
