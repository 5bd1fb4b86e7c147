"""The relay in the file, and as a process of a replicator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogWriter
from headrace.errors import ConfigError
from headrace.observe.status import ProcessStatus
from headrace.relay.server.settings import Role
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.relaying import relay_settings
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.run import child_specs
from headrace.replicator.supervisor import ChildSpec, Supervisor
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, pulled
from tests.requirements import req
from tests.waiting import until

SMALLEST = """
source: {type: postgres, url: "postgresql://user@host/db", tables: ["public.*"]}
target: {type: delta, path: ./lake}
"""
TOKENS = "tokens: [{name: a, token: swordfish-swordfish}, {name: b, token: catfish-catfish-x, role: admin}]"


def write(folder: Path, relay: str | None = "{}", name: str = "shop") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\n{SMALLEST}" + (f"relay: {relay}\n" if relay else ""))
    return path


def settings_of(*files: Path):
    return relay_settings({file: load(file) for file in files})


def test_the_section_becomes_the_settings_of_the_server(tmp_path):
    file = write(
        tmp_path,
        "{listen: '0.0.0.0:7171', workers: 3, tls: {certificate: c.pem, key: c.key}, send_timeout_s: 5, "
        f"heartbeat_s: 2, {TOKENS}, routes: ['http://a:1', 'https://b:2']}}",
    )
    found = settings_of(file)
    assert (found.host, found.port, found.workers) == ("0.0.0.0", 7171, 3)
    assert (found.certificate, found.key) == (tmp_path / "c.pem", tmp_path / "c.key")
    assert (found.send_timeout_s, found.heartbeat_s) == (5, 2)
    assert [(token.name, token.role) for token in found.tokens] == [
        ("a", Role.READER),
        ("b", Role.ADMIN),
    ]
    assert found.tokens[0].secret == "swordfish-swordfish"
    (source,) = found.sources
    paths = StatePaths(tmp_path / ".headrace" / "shop")
    assert (source.name, source.log, source.registry) == ("shop", paths.changelog, paths.registry)
    assert source.state == paths.database
    assert source.relays == ("http://a:1", "https://b:2")
    os.utime(file, (1_900_000_000, 1_900_000_000))
    assert settings_of(file).sources[0].routes_version == 1_900_000_000


def test_secrets_of_the_section_are_not_shown(tmp_path):
    config = load(write(tmp_path, f"{{{TOKENS}}}"))
    for shown in (repr(config), config.model_dump_json(), repr(relay_settings({}))):
        assert "swordfish" not in shown


@pytest.mark.parametrize(
    ("relay", "named"),
    [
        ("{listen: 7070}", "relay.listen"),
        ("{listen: 'http://a:1'}", "relay.listen"),
        ("{listen: 'a:99999'}", "relay.listen"),
        ("{workers: 0}", "relay.workers"),
        ("{heartbeat_s: 0}", "relay.heartbeat_s"),
        ("{tls: {key: a}}", "relay.tls.certificate"),
        ("{tokens: [{name: a, token: short}]}", r"relay.tokens\[0\].token"),
        ("{tokens: [{name: a, token: swordfish-swordfish, rolle: x}]}", "did you mean role"),
        ("{tokens: [{name: a, token: swordfish-swordfish, role: root}]}", "'reader' or 'admin'"),
        ("{routes: ['ftp://a']}", "relay.routes"),
        ("{routes: ['http://me:secret@a']}", "relay.routes"),
        ("{workrs: 1}", "did you mean workers"),
    ],
)
def test_a_section_that_does_not_read_is_refused_by_name(tmp_path, relay, named):
    with pytest.raises(ConfigError, match=named) as caught:
        load(write(tmp_path, relay))
    for secret in ("short", "swordfish", "secret"):
        assert secret not in str(caught.value)


def test_beyond_this_machine_tokens_are_needed(tmp_path):
    with pytest.raises(ConfigError, match=r"relay\.listen"):
        settings_of(write(tmp_path, "{listen: '0.0.0.0:7070'}"))


def test_several_files_share_one_relay_and_say_the_same_about_it(tmp_path):
    shop = write(tmp_path, "{workers: 2, routes: ['http://a:1']}")
    billing = write(tmp_path, None, "billing")
    both = settings_of(shop, billing)
    assert [source.name for source in both.sources] == ["shop", "billing"]
    assert both.workers == 2
    assert (both.sources[0].relays, both.sources[1].relays) == (("http://a:1",), ())
    write(tmp_path, "{workers: 2}", "billing")
    assert settings_of(shop, billing).workers == 2
    write(tmp_path, "{workers: 3}", "billing")
    with pytest.raises(ConfigError, match=r"shop\.yaml and billing\.yaml"):
        settings_of(shop, billing)
    twice = tmp_path / "other"
    twice.mkdir()
    with pytest.raises(ConfigError, match="two files describe a replicator shop"):
        settings_of(write(tmp_path), write(twice))


def test_a_replicator_starts_a_relay_where_its_file_has_the_section(tmp_path):
    for relay, roles in ((None, ["capture", "apply"]), ("{}", ["capture", "apply", "relay"])):
        file = write(tmp_path, relay)
        assert [spec.name for spec in child_specs(file, load(file))] == roles


@req("D46")
def test_the_supervised_relay_serves_and_comes_back_when_it_is_killed(tmp_path):
    file = write(tmp_path, "{listen: '127.0.0.1:0'}")
    config = load(file)
    paths = StatePaths.of(config)
    (spec,) = [one for one in child_specs(file, config) if one.name == "relay"]
    with (
        ChangeLogWriter.open(paths.changelog) as writer,
        Supervisor(paths, [spec], policy=RestartPolicy(first_s=0.01)) as supervisor,
    ):
        synced(writer, window(1), window(2))

        def url() -> str:
            supervisor.poll()
            status = ProcessStatus.read(paths.status("relay"))
            pid = supervisor.pids.get("relay")
            return str(status.detail.get("url", "")) if status and status.pid == pid else ""

        first = until(url, "the relay says where it is")
        assert scns(pulled(first, after=0)) == [1, 2]
        assert ask(first, "/sources").json["sources"][0]["name"] == "shop"
        before = supervisor.pids["relay"]
        os.kill(before, signal.SIGKILL)

        def started_again() -> bool:
            supervisor.poll()
            return supervisor.pids.get("relay") not in (None, before)

        until(started_again, "the relay is started again")
        assert scns(pulled(until(url, "the relay says where it is"), after=0)) == [1, 2]


def test_the_command_serves_files_until_it_is_told_to_end(tmp_path):
    file = write(tmp_path, "{listen: '127.0.0.1:0'}")
    with ChangeLogWriter.open(StatePaths.of(load(file)).changelog) as writer:
        synced(writer, window(1))
        command = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "relay", str(file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert command.stdout is not None
            said = command.stdout.readline()
            assert "serving shop on http://127.0.0.1:" in said
            url = said.split(" on ")[1].split(";")[0]
            assert scns(pulled(url, after=0)) == [1]
            command.send_signal(signal.SIGINT)
            assert command.wait(30) == 0
        finally:
            command.kill()
            command.wait()
            if command.stdout is not None:
                command.stdout.close()


def test_a_relay_that_would_be_open_to_everybody_stops_the_replicator(tmp_path):
    file = write(tmp_path, "{listen: '0.0.0.0:0'}")
    paths = StatePaths.of(load(file))
    argv = (sys.executable, "-m", "headrace.replicator.relay_process", str(file))
    with Supervisor(paths, [ChildSpec("relay", argv)]) as supervisor:

        def polled() -> bool:
            try:
                supervisor.poll()
            except ConfigError as error:
                return "relay.tokens" in error.next_step
            return False

        until(polled, "the supervisor stops")
