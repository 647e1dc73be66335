"""The setting of players beside the broker: a part of `config.Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import Kind, setting


@dataclass(frozen=True)
class PlayerFileSettings:
    """The log groups that this node's players deliver while it leads them; `lockstep serve` starts the
    players."""

    lockstep_player_config: str = setting(
        "lockstep.player.config",
        Kind.STRING,
        "",
        "File with a player's configuration in TOML: this process delivers its topic, each partition "
        "while this node leads it. Empty: none.",
    )
