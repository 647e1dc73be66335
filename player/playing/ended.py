"""Why a playing does not go on, in words for an operator."""

from __future__ import annotations

from player.source.interface import SourceEnded


class PlayingEnded(Exception):
    """It does not go on; the text says why."""


class Deposed(PlayingEnded):
    """A target has been greeted by a player with a higher player_term."""

    def __init__(self, player_term: int) -> None:
        super().__init__(f"a player in term {player_term} has greeted a target")
        self.player_term = player_term


def ended_by(error: Exception) -> PlayingEnded:
    """What an error that nobody caught means for the playing; the error is kept as its cause."""
    if isinstance(error, PlayingEnded):
        return error
    named = "" if isinstance(error, SourceEnded) else f"{type(error).__name__}: "
    ended = PlayingEnded(f"{named}{error}")
    ended.__cause__ = error
    return ended
