"""Traces of what stages do: OpenTelemetry spans with the SCN as an attribute, where the environment names a collector.

In: the standard variables of OpenTelemetry (``OTEL_EXPORTER_OTLP_ENDPOINT`` and its kin). Out: spans over OTLP and
HTTP, from a thread of the library's own. Without such a variable nothing is imported, and a span costs a call.

Source: OpenTelemetry specification, "OTLP exporter configuration".
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

__all__ = ["begin_tracing", "end_tracing", "span", "traced"]

P = ParamSpec("P")
R = TypeVar("R")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OFF: AbstractContextManager[Any] = nullcontext()
_log = logging.getLogger(__name__)

_tracer: Any = None
_provider: Any = None


def begin_tracing(stage: str, replicator: str) -> None:
    """Let this process send spans from now on, where the environment names a collector.

    Args:
        stage: what the process is: ``service.name`` is ``headrace-<stage>`` unless ``OTEL_SERVICE_NAME`` says so.
        replicator: its name, an attribute of everything that is sent.
    """
    global _tracer, _provider
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning(
            "traces are asked for and cannot be sent. Next step: pip install 'headrace[otel]'"
        )
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or f"headrace-{stage}"
    resource = Resource.create({"service.name": name, "headrace.replicator": replicator})
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("headrace")


def end_tracing() -> None:
    """Send what was not sent yet, and no more."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        provider.shutdown()


def span(name: str, **attributes: int | str) -> AbstractContextManager[Any]:
    """Return a block that is one span; an error that ends it is told by its type alone.

    Args:
        name: of the stage, such as ``apply.batch``.
        attributes: ``scn`` above all; sent as ``headrace.scn`` and so on. Never a value of a row.
    """
    if _tracer is None:
        return _OFF
    return _Span(name, {f"headrace.{key}": value for key, value in attributes.items()})


def traced(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make each call of a function a span."""

    def wrapped(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if _tracer is None:
                return function(*args, **kwargs)
            with span(name):
                return function(*args, **kwargs)

        return called

    return wrapped


class _Span(AbstractContextManager[Any]):
    """A span of the library, which would send an error's own words."""

    def __init__(self, name: str, attributes: dict[str, int | str]) -> None:
        self._block = _tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )

    def __enter__(self) -> Any:
        self._made = self._block.__enter__()
        return self._made

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            from opentelemetry.trace import Status, StatusCode

            self._made.set_attribute("error.type", kind.__name__)
            self._made.set_status(Status(StatusCode.ERROR))
        self._block.__exit__(kind, *rest)
