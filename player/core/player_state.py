"""The state of one player, for the modules that change it; `player.Player` is its interface."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.player.core.messages import NOTHING
from lockstep.player.core.ready import PlayerReady
from lockstep.player.core.router import Router
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.core.target import Target


class PlayerState:
    """The attributes of a player. Args: as `Player`'s."""

    __slots__ = (
        "current_position",
        "deposed",
        "entries_since_dummies",
        "log_id",
        "max_removed_term",
        "now_ms",
        "outbox",
        "player_term",
        "random",
        "route",
        "settings",
        "start_due_ms",
        "started",
        "targets",
        "terms",
        "unrouted",
    )

    def __init__(
        self,
        log_id: str,
        player_term: int,
        route: Router,
        settings: PlayerSettings,
        now_ms: int,
        random: Callable[[int], int],
    ) -> None:
        self.log_id = log_id
        self.player_term = player_term
        self.route = route
        self.settings = settings
        self.now_ms = now_ms
        self.random = random
        self.targets: dict[str, Target] = {}
        self.terms: dict[str, int] = {}
        """The newest term of each target."""
        self.max_removed_term = 0
        """The highest term of a removed target."""
        self.started = False
        self.start_due_ms = now_ms + settings.start_timeout_ms
        self.current_position = NOTHING
        """The last position of the main stream; at the start, the position before its first."""
        self.entries_since_dummies = 0
        self.unrouted = 0
        """Parts for unknown targets."""
        self.deposed = False
        self.outbox = PlayerReady()
