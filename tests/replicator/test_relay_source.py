"""A replicator whose changes come from relays: its file, and what it cannot do without the database."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader, register_job
from headrace.errors import ConfigError
from headrace.relay import follow
from headrace.replicator import runner
from headrace.replicator.config import RelaySourceConfig
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.relaying import relay_settings
from headrace.replicator.requests import Requests
from headrace.testing.relay import served
from tests.changelog.windows import TABLE, window
from tests.client.logs import LogFolder
from tests.requirements import req
from tests.waiting import until

TOKEN = "swordfish-swordfish"


def write(folder: Path, source: str, more: str = "") -> Path:
    path = folder / "shop.yaml"
    path.write_text(f"name: shop\nsource: {source}\ntarget: {{type: delta, path: ./lake}}\n{more}")
    return path


def test_the_smallest_file_is_read(tmp_path: Path) -> None:
    source = load(write(tmp_path, "{type: relay, urls: ['http://a:7070']}")).source
    assert isinstance(source, RelaySourceConfig)
    assert (source.urls, source.token, source.ca) == (("http://a:7070",), None, None)


def test_it_is_called_as_the_relays_call_it(tmp_path: Path) -> None:
    url = "urls: ['http://a']"
    assert load(write(tmp_path, f"{{type: relay, {url}}}")).source_name == "shop"
    config = load(write(tmp_path, f"{{type: relay, {url}, source: big-shop}}", "relay: {}\n"))
    assert (config.name, config.source_name) == ("shop", "big-shop")
    (served_as,) = relay_settings({tmp_path / "shop.yaml": config}).sources
    assert served_as.name == "big-shop"


def test_its_authority_lies_beside_the_file_and_its_token_is_not_shown(tmp_path: Path) -> None:
    said = f"{{type: relay, urls: ['https://a'], token: {TOKEN}, ca: certificates/ca.pem}}"
    config = load(write(tmp_path, said))
    assert isinstance(config.source, RelaySourceConfig)
    assert config.source.ca == tmp_path / "certificates" / "ca.pem"
    assert TOKEN not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    ("source", "more", "named"),
    [
        ("{type: relay}", "", "source.urls: missing"),
        ("{type: relay, urls: []}", "", "source.urls: expected at least one"),
        ("{type: relay, urls: ['ftp://a']}", "", "source.urls: expected a list of URLs"),
        ("{type: relay, urls: ['http://a'], tokn: x}", "", "source.tokn: unknown name; did you"),
        ("{urls: ['http://a']}", "", "source.type: missing"),
        ("{type: relay, urls: ['http://a'], tables: [orders]}", "", "source.tables"),
        ("{type: relay, urls: ['http://a'], source: 'The Shop'}", "", "source.source"),
        (
            "{type: relay, urls: ['http://a']}",
            "changes: {incompatible: recopy}",
            "changes.incompatible takes rows from the database",
        ),
        (
            "{type: relay, urls: ['http://a']}",
            "tables: {public.t: {first_copy: adopted}}",
            "tables.public.t.first_copy takes rows from the database",
        ),
    ],
)
def test_what_cannot_be_said_is_named(tmp_path: Path, source: str, more: str, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        load(write(tmp_path, source, more))


def test_what_takes_the_database_is_refused_by_name(tmp_path: Path) -> None:
    config = load(write(tmp_path, "{type: relay, urls: ['http://a:1']}"))
    for ask in (runner.verify, runner.schema_diff, Requests):
        with pytest.raises(ConfigError, match="reads its changes from a relay") as refused:
            ask(config)
        assert "where the source's capture runs" in refused.value.next_step


def test_preflight_and_the_goal_ask_the_relay(tmp_path: Path) -> None:
    log = LogFolder(tmp_path / "log")
    log.register(TABLE)
    log.append(window(7))
    with served({"shop": log.folder}) as url:
        config = load(write(tmp_path, f"{{type: relay, urls: ['{url}']}}"))
        other = load(write(tmp_path, f"{{type: relay, urls: ['{url}'], source: other}}"))
        assert [finding.name for finding in runner.preflight(other)] == ["no-relay"]
        assert runner.preflight(config) == []
        assert runner.goal(config) == (7, frozenset())
    log.close()
    (finding,) = runner.preflight(config)
    assert finding.name == "no-relay"
    assert finding.suggestion


@req("D45")
def test_nothing_is_dropped_from_the_copy_before_the_tables_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_RETAIN_S", 0.0)
    log = LogFolder(tmp_path / "log")
    log.register(TABLE)
    log.append(*(window(scn, text="x" * 20_000) for scn in range(1, 20)))
    stop = threading.Event()
    with served({"shop": log.folder}, heartbeat_s=0.1) as url:
        kept = "changelog: {segment: 64KiB, retain: 0}"
        config = load(write(tmp_path, f"{{type: relay, urls: ['{url}']}}", kept))
        told: list[dict[str, object]] = []
        assert isinstance(config.source, RelaySourceConfig)
        thread = threading.Thread(
            target=runner.follow, args=(config, config.source, stop, told.append)
        )
        thread.start()
        try:
            folder = StatePaths.of(config).changelog
            reader = ChangeLogReader(folder)
            until(lambda: reader.tail().covered_scn == 19, "the copy")
            log.append(window(20))
            until(lambda: reader.tail().covered_scn == 20, "another round")
            assert reader.tail().oldest_scn == 0
            assert len(list(folder.glob("*.seg"))) > 5
            register_job(folder, "shop", 20)
            until(lambda: reader.tail().oldest_scn > 0, "what the tables have may go")
            # It says so once the round is over.
            until(lambda: told[-1]["covered_scn"] == 20, "what it says of itself")
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive()
    log.close()


def test_it_can_be_served_on_as_a_copy(tmp_path: Path) -> None:
    path = write(tmp_path, "{type: relay, urls: ['http://a:1']}", "relay: {listen: '127.0.0.1:0'}")
    (source,) = relay_settings({path: load(path)}).sources
    assert source.state is None
    assert source.follower is not None
