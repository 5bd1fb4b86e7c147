"""A relay that reads from another one, as people start it: its file, its process, what it says of itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.changelog import ChangeLogReader
from headrace.client import HttpSettings
from headrace.errors import ConfigError, RelayUnavailable
from headrace.observe.status import ProcessStatus
from headrace.relay.follow import FOLLOWING, FollowStatus
from headrace.relay.server.settings import Role, Token
from headrace.replicator import following
from headrace.replicator.config_file import load, load_relay
from headrace.replicator.follower_config import FOLLOWER, FollowerConfig
from headrace.replicator.paths import StatePaths
from headrace.replicator.relaying import relay_settings
from headrace.replicator.upstream import RelayUpstream
from headrace.testing.histories import TABLES
from headrace.testing.line_faults import Damage, FaultyLine
from headrace.testing.ports import free_port
from headrace.testing.relay import served
from tests.certificates import self_signed
from tests.changelog.windows import TABLE, window
from tests.client.logs import LogFolder, random_blocks
from tests.relay.following import held_bytes
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until

TOKEN = "swordfish-swordfish"


def write(folder: Path, upstream: str, name: str = "shop", listen: str = "127.0.0.1:0") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: shop\nrelay: {{listen: '{listen}', heartbeat_s: 0.2, upstream: {upstream}}}\n"
        f"state: {{dir: {name}}}\n"
    )
    return path


@contextmanager
def relay(file: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``headrace relay FILE``, and give the URL that it tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "relay", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        yield found[0], process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def test_the_smallest_file_of_a_follower_is_read(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\nrelay: {upstream: {urls: ['http://a:7070']}}\n")
    config = load_relay(file)
    assert isinstance(config, FollowerConfig)
    assert config.relay.upstream.urls == ("http://a:7070",)
    (source,) = relay_settings({file: config}).sources
    paths = StatePaths(tmp_path / ".headrace" / "shop")
    assert (source.name, source.log, source.registry) == ("shop", paths.changelog, paths.registry)
    # There is no capture that could be told anything.
    assert source.state is None


def test_an_upstreams_authority_is_looked_for_beside_the_file(tmp_path):
    config = load_relay(write(tmp_path, "{urls: ['https://a:1'], ca: certificates/ca.pem}"))
    assert isinstance(config, FollowerConfig)
    assert config.relay.upstream.ca == tmp_path / "certificates" / "ca.pem"
    config = load_relay(write(tmp_path, "{urls: ['https://a:1']}"))
    assert isinstance(config, FollowerConfig)
    assert config.relay.upstream.ca is None


@req("D39")
def test_a_follower_reads_from_a_relay_with_tls_and_a_token(tmp_path):
    log = LogFolder(tmp_path / "leader")
    log.register(*TABLES)
    blocks = random_blocks(8)
    log.append(*blocks)
    pair = self_signed(tmp_path / "certificates")
    tokens = (Token("second", TOKEN, Role.READER),)
    with served(
        {"shop": log.folder},
        heartbeat_s=0.2,
        tokens=tokens,
        certificate=pair.certificate,
        key=pair.key,
    ) as first:
        said = f"{{urls: ['{first}'], token: {TOKEN}, ca: certificates/relay.pem}}"
        with relay(write(tmp_path, said, "second")) as (url, _):
            folder = tmp_path / "second" / "changelog"
            end = blocks[-1].covered_scn
            until(lambda: ChangeLogReader(folder).tail().covered_scn >= end, "the copy")
            (source,) = ask(url, "/sources").json["sources"]
            assert source["state"] == "running"
    assert held_bytes(folder) == held_bytes(log.folder)
    log.close()


def test_the_last_word_of_a_follower_is_written(tmp_path, monkeypatch):
    config = load_relay(write(tmp_path, "{urls: ['http://a:1']}"))

    def tells(_config, _upstream, tell):
        def run(_stop):
            for scn in (10, 20):
                tell(FollowStatus(FOLLOWING, "", scn, scn, 1))

        return SimpleNamespace(run=run)

    monkeypatch.setattr(following, "_follower", tells)
    with following.followed({tmp_path / "shop.yaml": config}, threading.Event()):
        pass
    said = ProcessStatus.read(StatePaths.of(config).status(FOLLOWER))
    assert said is not None
    assert said.detail["complete_scn"] == 20
    assert "status" not in {thread.name for thread in threading.enumerate()}


def test_the_upstreams_token_is_not_shown(tmp_path):
    config = load_relay(write(tmp_path, f"{{urls: ['http://a:1'], token: {TOKEN}}}"))
    assert TOKEN not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("relay: {upstream: {urls: []}}", "relay.upstream.urls"),
        ("relay: {upstream: {urls: ['ftp://a']}}", "relay.upstream.urls"),
        ("relay: {upstream: {}}", "relay.upstream.urls"),
        ("relay: {upstream: {urls: ['http://a:1'], tokn: x}}", "did you mean token"),
        ("relay: {upstream: {urls: ['http://a:1']}}\nsource: {type: postgres}", "source"),
    ],
)
def test_what_a_followers_file_cannot_say_is_named(tmp_path, text, named):
    file = tmp_path / "shop.yaml"
    file.write_text(f"name: shop\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(named)):
        load_relay(file)


def test_a_followers_file_is_no_replicator_and_says_how_it_is_started(tmp_path):
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, "{urls: ['http://a:1']}"))
    assert "headrace relay shop.yaml" in refused.value.next_step


def test_what_came_before_a_line_broke_is_given_out_before_the_break_is_told(tmp_path):
    log = LogFolder(tmp_path / "leader")
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 9)))
    with served({"shop": log.folder}) as first, FaultyLine(first) as line:
        line.rule = lambda _: Damage(cut_at=5_000)
        upstream = RelayUpstream([line.url], "shop", HttpSettings())
        upstream.open(0, 0)
        assert upstream._thread is not None
        upstream._thread.join(60)
        blocks = upstream.take(1.0)
        assert [block.header.last_scn for block in blocks] == [*range(1, len(blocks) + 1)] != []
        with pytest.raises(RelayUnavailable):
            upstream.take(1.0)
        upstream.close()
    log.close()


@req("D39", "D46", "D50", "D22")
def test_a_chain_of_processes_survives_kills_and_freezes_byte_for_byte(tmp_path):
    log = LogFolder(tmp_path / "leader")
    log.register(*TABLES)
    blocks = random_blocks(7)
    parts = [blocks[:60], blocks[60:120], blocks[120:180], blocks[180:]]
    folder = tmp_path / "second" / "changelog"

    def copied() -> None:
        scn = log.writer.tail.covered_scn
        until(lambda: ChangeLogReader(folder).tail().covered_scn >= scn, f"SCN {scn}")

    with served({"shop": log.folder}, heartbeat_s=0.2) as first:
        file = write(tmp_path, f"{{urls: ['{first}']}}", "second")
        with relay(file) as (_, process):
            log.append(*parts[0])
            copied()
            process.send_signal(signal.SIGSTOP)
            log.append(*parts[1])
            process.send_signal(signal.SIGCONT)
            copied()
            process.kill()
            process.wait()
        log.append(*parts[2])
        with relay(file) as (second, _):
            copied()
            log.append(*parts[3])
            copied()
            (said,) = ask(second, "/sources").json["sources"]
            assert (said["name"], said["state"]) == ("shop", "running")
            refused = ask(second, "/admin/pause", post={"source": "shop"})
            assert refused.error["type"] == "NotServed"
    assert held_bytes(folder) == held_bytes(log.folder)
    log.close()


@req("B-11")
def test_a_follower_that_lost_its_upstream_says_so_and_serves_what_it_holds(tmp_path):
    log = LogFolder(tmp_path / "leader")
    log.register(TABLE)
    log.append(window(3), window(6))
    anew = LogFolder(tmp_path / "anew")
    anew.register(TABLE)
    anew.append(window(5), window(8))

    def state(url: str) -> str:
        return str(ask(url, "/sources").json["sources"][0]["state"])

    tokens = (Token("follower", TOKEN, Role.READER),)
    # Others are served there in turn, with times in between in which nobody listens.
    port = free_port()
    with (
        served({"shop": log.folder}, port=port, heartbeat_s=0.2, tokens=tokens) as first,
        relay(write(tmp_path, f"{{urls: ['{first}'], token: {TOKEN}}}", "second")) as (second, _),
    ):
        until(lambda: ask(second, "/sources").json["sources"][0]["covered_scn"] == 6, "copied")
        assert ask(second, "/healthz").status == 200
    with relay(tmp_path / "second.yaml") as (second, _):
        until(lambda: state(second) == "waiting", "nobody upstream")
        assert ask(second, "/healthz").status == 200
        with served({"shop": anew.folder}, port=port, heartbeat_s=0.2):
            until(lambda: ask(second, "/healthz").status == 503, "another log upstream")
            assert "transaction 6" in ask(second, "/healthz").body.decode()
            assert ask(second, "/sources").json["sources"][0]["covered_scn"] == 6
        with served({"shop": log.folder}, port=port, heartbeat_s=0.2):
            log.append(window(9))
            until(lambda: state(second) == "running", "the right one is back")
    log.close()
    anew.close()
