"""Dead letters by API and command line: looked at, replayed by the rows of today, done without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore, LetterState
from headrace.cli.main import app
from headrace.errors import CommandRefused, ConfigError, NotFound
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.schema import KeyCheck, TableSchema
from headrace.registry.file import FileRegistry
from headrace.replicator import dead_letters as module
from headrace.replicator.config_file import load
from headrace.replicator.dead_letters import DeadLetters, replayed
from headrace.replicator.paths import StatePaths
from headrace.state.records import RequestState, Scope
from headrace.state.store import StateStore
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req

KEYED, BAG = table_of(3, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
SOURCE = "{type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}"
RELAY = "{type: relay, urls: ['http://a:7070']}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, SOURCE)


def written(folder: Path, source: str, more: str = "") -> Path:
    path = folder / "shop.yaml"
    path.write_text(f"name: shop\nsource: {source}\ntarget: {{type: delta, path: ./lake}}\n{more}")
    return path


def aside(
    file: Path, schema: TableSchema, history: str, scn: int, *, truncated: bool = False
) -> str:
    """Put one transaction aside, as the apply job does, and return the letter's name."""
    paths = StatePaths.of(load(file))
    batch = change_batch(schema, parse_history(history, scn).rows)
    schema_id = FileRegistry(paths.registry).put(schema)
    block = Block(
        transaction_index([(scn, 5, 7, batch.num_rows, ORIGIN_LOG, 1)]),
        (Body(schema_id, schema.table, batch),),
        (),
        scn,
    )
    error = {"name": "MissingBase", "message": "a row is missing.", "next_step": "see to it."}
    letter = DeadLetter(schema.table, scn, 5, batch.num_rows, {"+I": 1}, truncated, error, 9)
    DeadLetterStore(paths.dead_letters).put(letter, iter([block]))
    return letter.letter_id


@pytest.fixture
def state(file: Path) -> Iterator[StateStore]:
    with closing(StateStore(StatePaths.of(load(file)).database)) as opened:
        yield opened


@pytest.fixture
def letters(file: Path) -> Iterator[DeadLetters]:
    with DeadLetters(load(file)) as opened:
        yield opened


@req("C67")
def test_a_replay_asks_for_every_key_of_the_letter_and_deletes_what_is_gone(
    file: Path, letters: DeadLetters, state: StateStore
) -> None:
    name = aside(file, KEYED, "=U(1,x,?) -U(2) +U(3,?,?) -D(4) +I(1,a,b)", 20)
    assert name == "public.keyed@20"
    (waiting,) = letters.all()
    assert (waiting.letter_id, waiting.state, waiting.rows) == (name, LetterState.WAITING, 5)

    under_way = letters.replay(name)
    request = state.request(under_way.request)
    assert request is not None
    assert (request.scope, request.table) == (Scope.PRIMARY_KEYS, KEYED.table)
    assert set(request.keys) == {("1",), ("2",), ("3",), ("4",)}
    assert request.delete_missing
    assert letters.replay(name) == under_way, "asked for once"
    assert len(state.requests()) == 1
    with pytest.raises(CommandRefused, match="is being replayed by request"):
        letters.discard(name)

    paths = StatePaths.of(load(file))
    assert replayed(paths.database, under_way.request) is None
    state.move(under_way.request, RequestState.COMPLETED, since=(RequestState.QUEUED,))
    assert replayed(paths.database, under_way.request) is True
    DeadLetterStore(paths.dead_letters).update(under_way, state=LetterState.REPLAYED)
    assert letters.all() == []
    for again in (letters.replay, letters.discard):
        with pytest.raises(CommandRefused, match="was replayed"):
            again(name)
    assert replayed(paths.database, "no such request") is False


@pytest.mark.parametrize("what", ["no key", "truncated", "many"])
def test_where_keys_do_not_say_it_all_the_whole_table_is_read(
    file: Path,
    letters: DeadLetters,
    state: StateStore,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 2)
    schema = BAG if what == "no key" else KEYED
    rows = {"no key": "-D(1,a)", "truncated": "+I(1,a,b)"}
    history = rows.get(what, "+I(1,a,b) +I(2,a,b) +I(3,a,b)")
    name = aside(file, schema, history, 20, truncated=what == "truncated")
    request = state.request(letters.replay(name).request)
    assert request is not None
    assert (request.scope, request.table, request.delete_missing) == (
        Scope.TABLE,
        schema.table,
        False,
    )


def test_what_no_source_can_read_again_is_refused_by_name(tmp_path: Path) -> None:
    for source, more, why in (
        (RELAY, "", "reads its changes from a relay"),
        (SOURCE, "tables: {public.keyed: {mode: history}}\n", r"keeps what was \(history\)"),
    ):
        file = written(tmp_path, source, more)
        name = aside(file, KEYED, "+I(1,a,b)", 20)
        with DeadLetters(load(file)) as letters:
            with pytest.raises(ConfigError, match=why):
                letters.replay(name)
            assert [letter.state for letter in letters.all()] == [LetterState.WAITING]


@req("C67")
def test_letters_are_listed_shown_and_discarded_by_commands(file: Path) -> None:
    def said(*words: str) -> str:
        command, *rest = words
        run = CliRunner().invoke(app, ["dead-letters", command, str(file), *rest])
        assert run.exit_code == 0, run.output
        return run.output

    assert said("list") == "no dead letter waits\n"
    first = aside(file, KEYED, "+I(1,sécret,b)", 20)
    second = aside(file, KEYED, "-U(1,sécret,b) +U(1,x,b)", 30)
    assert [one["letter"] for one in json.loads(said("list", "--json"))] == [first, second]
    listed = said("list", "--table", "public.keyed")
    assert "MissingBase: a row is missing." in listed
    assert "sécret" not in listed + said("show", first) + said("show", first, "--json")
    (line,) = map(json.loads, said("show", second, "--rows").splitlines())
    assert line == {
        "scn": 30,
        "ord": line["ord"],
        "op": "+U",
        "table": "public.keyed",
        "row": {"k": 1, "c1": "x", "c2": "b"},
        "before": {"k": 1, "c1": "sécret", "c2": "b"},
    }
    assert "replaying by request" in said("replay", first)
    assert "discarded" in said("discard", second)
    assert said("show", second, "--rows") == ""
    assert [one["state"] for one in json.loads(said("list", "--all", "--json"))] == [
        "replaying",
        "discarded",
    ]
    assert "public.keyed@20" in said("replay", "--table", "public.keyed")
    for words in (["replay"], ["discard", first, "--table", "public.keyed"]):
        command, *rest = words
        refused = CliRunner().invoke(app, ["dead-letters", command, str(file), *rest])
        assert refused.exit_code == 2


def test_a_letter_that_is_not_there_is_not_found(letters: DeadLetters) -> None:
    for asked in (letters.show, letters.replay, letters.discard):
        with pytest.raises(NotFound, match=r"no dead letter public\.t@1"):
            asked("public.t@1")
