"""The relay of one or several replicators: what their files say about it, as settings of the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.errors import ConfigError
from headrace.relay.server.settings import RelaySettings, Role, ServedSource, Token
from headrace.replicator.config import Config
from headrace.replicator.follower_config import FOLLOWER, FollowerConfig
from headrace.replicator.paths import StatePaths
from headrace.replicator.relay_config import RelayConfig, RelaySourceConfig

__all__ = ["relay_settings"]


def relay_settings(configs: Mapping[Path, Config | FollowerConfig]) -> RelaySettings:
    """Return the settings of one relay for several files; defaults hold where none has a section ``relay``.

    Raises:
        ConfigError: two files say different things about the relay, or it would be served by mistake.
    """
    said = {file: config.relay for file, config in configs.items() if config.relay is not None}
    of_all = {
        file: relay.model_dump(exclude={"routes", "upstream"}) for file, relay in said.items()
    }
    chosen = next(iter(said.values()), RelayConfig())
    first = next(iter(of_all.values()), None)
    other = next((file for file, relay in of_all.items() if relay != first), None)
    if other is not None:
        raise ConfigError(
            f"relay: {next(iter(of_all)).name} and {other.name} say different things about one relay.",
            next_step="let their sections relay be the same but for routes and upstream, leave one out, or start "
            "two relays.",
        )
    settings = RelaySettings(
        tuple(_source(file, config, said.get(file)) for file, config in configs.items()),
        chosen.host,
        chosen.port,
        chosen.workers,
        chosen.tls.certificate if chosen.tls else None,
        chosen.tls.key if chosen.tls else None,
        tuple(
            Token(token.name, token.token.get_secret_value(), Role(token.role))
            for token in chosen.tokens
        ),
        chosen.send_timeout_s,
        chosen.heartbeat_s,
    )
    settings.validate()
    return settings


def _source(file: Path, config: Config | FollowerConfig, relay: RelayConfig | None) -> ServedSource:
    paths = StatePaths.of(config)
    status = _told_by_follower(config, paths)
    return ServedSource(
        config.source_name,
        paths.changelog,
        paths.registry,
        paths.database if status is None else None,
        relay.routes if relay else (),
        # It rises with each change of the file, which the list is a part of.
        int(file.stat().st_mtime),
        status,
        paths.status("capture") if status is None else None,
    )


def _told_by_follower(config: Config | FollowerConfig, paths: StatePaths) -> Path | None:
    """Return where the follower that fills the log says what it does; None where a capture does."""
    if isinstance(config, FollowerConfig):
        return paths.status(FOLLOWER)
    return paths.status("capture") if isinstance(config.source, RelaySourceConfig) else None
