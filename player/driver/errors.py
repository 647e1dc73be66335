"""The reasons why a driver stops, in words for an operator."""

from __future__ import annotations

from lockstep.player.source.interface import SourceClosed


class PlayerStopped(Exception):
    """The driver stops; the text has the reason."""


class Deposed(PlayerStopped):
    """A target has a stream of a player with a higher player_term."""

    def __init__(self, player_term: int) -> None:
        super().__init__(f"a player in term {player_term} has opened a stream to a target")
        self.player_term = player_term


def stop_reason(error: Exception) -> PlayerStopped:
    """The PlayerStopped for an uncaught error, which is kept as its cause."""
    if isinstance(error, PlayerStopped):
        return error
    named = "" if isinstance(error, SourceClosed) else f"{type(error).__name__}: "
    ended = PlayerStopped(f"{named}{error}")
    ended.__cause__ = error
    return ended
