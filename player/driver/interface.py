"""The driver as its streams see it.

Owns: `Driver`, what the main stream and the targets' streams use of `PlayerDriver`. It is here so that they
do not import the driver, which makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lockstep.player.core.player import Player
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.source.interface import LogBounds, Source
from lockstep.player.transport.interface import Streams


class StreamOfTarget(Protocol):
    """The stream of a target, by which the driver distinguishes several of one target."""

    name: str
    target_term: int


class Driver(Protocol):
    """The methods and attributes that a stream uses; `PlayerDriver` describes each."""

    core: Player
    source: Source
    settings: PlayerSettings
    streams: Streams
    log_name: str
    poll_s: float

    def step(self, call: Callable[..., object], *args: Any) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def on_connected(self, stream: StreamOfTarget, position: int, bounds: LogBounds) -> None: ...
    def on_misplaced(self, stream: StreamOfTarget, reason: str) -> None: ...
    def on_stale(self, stream: StreamOfTarget, player_term: int) -> None: ...
    def on_acknowledged(self, stream: StreamOfTarget, position: int) -> None: ...
    def on_written(self, stream: StreamOfTarget) -> None: ...
    def on_disconnected(self, stream: StreamOfTarget, reason: str) -> None: ...
