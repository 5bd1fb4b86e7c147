"""The relay's server: the change stream of one or several sources over HTTP, as ``docs/relay_protocol.md`` says.

In: folders of change logs, written by captures in other processes. Out: blocks as they are stored, to any number of
consumers, about whom nothing is kept. Settings, then the way of a request: connection, access, request, feed, supply,
stream.
"""

from __future__ import annotations

from headrace.relay.server.settings import RelaySettings, Role, ServedSource, Token

__all__ = ["RelaySettings", "Role", "ServedSource", "Token"]
