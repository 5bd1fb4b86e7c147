"""Durable small state: dump requests, progress, re-read lists, certificates."""

from headrace.state.store import DumpProgress, DumpRequest, RequestState, StateStore

__all__ = ["DumpProgress", "DumpRequest", "RequestState", "StateStore"]
