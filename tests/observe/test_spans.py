"""Spans come to a real collector with their SCN; without one nothing is loaded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.observe import spans

OFF = """
import sys
from headrace.observe.spans import begin_tracing, end_tracing, span, traced

begin_tracing("capture", "shop")

@traced("capture.chunk")
def work():
    return 7

with span("capture.round", scn=1) as made:
    assert made is None
assert work() == 7
end_tracing()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
assert span("a") is span("b")
"""


class Collector(ThreadingHTTPServer):
    """An OTLP collector on a free port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.resources: list[dict[str, Any]] = []
        self.ids: dict[str, tuple[bytes, bytes]] = {}

    def take(self, body: bytes) -> None:
        for held in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(
                {one.key: one.value.string_value for one in held.resource.attributes}
            )
            for scope in held.scope_spans:
                for made in scope.spans:
                    values = {
                        one.key: one.value.string_value or one.value.int_value
                        for one in made.attributes
                    }
                    values["failed"] = made.status.code == 2
                    values["said"] = f"{made.events} {made.status.message}"
                    self.found.append((made.name, values))
                    self.ids[made.name] = (made.span_id, made.parent_span_id)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.take(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_without_a_collector_nothing_is_loaded_and_a_span_is_nothing() -> None:
    subprocess.run(
        [sys.executable, "-c", OFF],
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
        check=True,
    )


def test_spans_come_to_the_collector_with_their_scn_and_no_words_of_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        spans.begin_tracing("apply", "shop")
        try:

            @spans.traced("apply.plan")
            def plan() -> None:
                """Do nothing."""

            with spans.span("apply.batch", from_scn=3, scn=9):
                plan()
            with pytest.raises(ValueError), spans.span("apply.tables", scn=9):
                raise ValueError("swordfish")
        finally:
            spans.end_tracing()
    found = dict(collector.found)
    assert set(found) == {"apply.batch", "apply.plan", "apply.tables"}
    assert (found["apply.batch"]["headrace.from_scn"], found["apply.batch"]["headrace.scn"]) == (
        3,
        9,
    )
    assert not found["apply.batch"]["failed"]
    assert found["apply.tables"]["failed"]
    assert found["apply.tables"]["error.type"] == "ValueError"
    assert "swordfish" not in str(collector.found)
    assert collector.ids["apply.plan"][1] == collector.ids["apply.batch"][0]
    (resource,) = {(one["service.name"], one["headrace.replicator"]) for one in collector.resources}
    assert resource == ("headrace-apply", "shop")


def test_a_word_is_said_where_the_packages_are_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    spans.begin_tracing("capture", "shop")
    assert "headrace[otel]" in caplog.text
    assert spans.span("capture.round", scn=1) is spans.span("capture.round", scn=2)
