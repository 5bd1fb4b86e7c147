"""A change log and a relay over it, for the commands that read one."""

from tests.client.conftest import log, relay

__all__ = ["log", "relay"]
