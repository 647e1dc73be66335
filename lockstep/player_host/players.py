"""The logs that one process delivers, and the targets that all of them have, which may change meanwhile.

Owns: which targets there are and which are paused, for every driver of this process, now and later. What is
changed here lasts as long as the process: the configuration's file is the truth, and is read at the start.
Does not: choose the player of a log (`standby`, `local_players`), or read a log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Final

from lockstep.player.core.router import Router
from lockstep.player.driver.driver import PlayerDriver
from lockstep.player.driver.errors import stop_reason
from lockstep.player.driver.target_record import TargetEndpoint
from lockstep.player.source.interface import LogBounds, Source, SourceClosed
from lockstep.player.transport.interface import Streams
from lockstep.player_host.config import First, PlayerConfig, TargetConfig, at_address

log = logging.getLogger("lockstep.player")

PAUSED: Final = "paused"
_NO_BOUNDS: Final = LogBounds(0, 0)
"""The bounds of a log that has ended."""


class Players:
    """See the module.

    Args:
        route, streams: shared by all logs; their owner closes them.
        targets: by name, which is changed here; a route may look at it. Without it those of `config`.
    """

    def __init__(
        self,
        config: PlayerConfig,
        route: Router,
        streams: Streams,
        targets: dict[str, TargetConfig] | None = None,
    ) -> None:
        self.config = config
        self._route = route
        self._streams = streams
        self._targets = dict(config.targets) if targets is None else targets
        self._paused: set[str] = set()
        self._drivers: dict[str, PlayerDriver] = {}
        """By log."""

    def warn_without_targets(self) -> None:
        """Logs that nothing is delivered where no target is configured: the player still runs."""
        if not self._targets:
            log.warning(
                "player %s has no targets, so that nothing is delivered: configure targets.NAME.address, or "
                "`lockstep player add NAME HOST:PORT`",
                self.config.player,
            )

    async def deliver(self, source: Source, player_term: int) -> None:
        """Delivers one log until cancelled; the source stays open. Raises PlayerStopped, SourceClosed.

        `player_term`: of a committed record, higher than that of every player before.
        """
        try:
            bounds = await source.bounds()
        except SourceClosed:
            raise
        except Exception as error:
            raise stop_reason(error) from error
        driver = PlayerDriver(
            source,
            self._streams,
            self._route,
            self.config.settings,
            player_term,
            [_endpoint(name, each, bounds) for name, each in self._targets.items()],
        )
        for name in self._paused:
            driver.stop(name, PAUSED)
        self._drivers[source.log_id] = driver
        try:
            await driver.run()
        finally:
            if self._drivers.get(source.log_id) is driver:
                del self._drivers[source.log_id]

    # --- changes at run time ------------------------------------------------------------------------------

    async def add(self, name: str, target: TargetConfig) -> None:
        """One more target of every log. Raises ValueError: there is one of that name, or at that address.

        All waits come first: a cancelled call has changed nothing.
        """
        self._check_new(name, target)
        bounds: dict[PlayerDriver, LogBounds] = {}
        while missing := [each for each in self._drivers.values() if each not in bounds]:
            with contextlib.suppress(SourceClosed):  # its driver is about to stop
                bounds[missing[0]] = _NO_BOUNDS
                bounds[missing[0]] = await missing[0].source.bounds()
        self._check_new(name, target)  # another request may have added it meanwhile
        self._targets[name] = target
        for driver in self._drivers.values():
            driver.add(*_endpoint(name, target, bounds[driver]))

    def remove(self, name: str) -> None:
        """Nothing more is sent to it; its mark stays with it. KeyError: there is none."""
        del self._targets[name]
        self._paused.discard(name)
        for driver in self._drivers_of(name):
            driver.remove(name)

    def pause(self, name: str) -> None:
        """Send nothing to a target until it is resumed. KeyError: there is none."""
        self._paused.add(self._require_target(name))
        for driver in self._drivers_of(name):
            driver.stop(name, PAUSED)

    def resume(self, name: str) -> None:
        """Resume a target that is paused, or that was stopped for an error. KeyError: there is none."""
        self._paused.discard(self._require_target(name))
        for driver in self._drivers_of(name):
            driver.resume(name)

    def _check_new(self, name: str, target: TargetConfig) -> None:
        if name in self._targets:
            raise ValueError(f"there is a target {name!r} already")
        if (other := at_address(self._targets, target.address)) is not None:
            raise ValueError(f"at {target.address} is target {other!r}")

    def _require_target(self, name: str) -> str:
        self._targets[name]
        return name

    def _drivers_of(self, name: str) -> list[PlayerDriver]:
        return [each for each in self._drivers.values() if name in each.core.targets]

    # --- status -----------------------------------------------------------------------------------------

    @property
    def drivers(self) -> Mapping[str, PlayerDriver]:
        """The drivers of this process, by log."""
        return self._drivers

    def status(self) -> dict[str, Any]:
        """For JSON: the targets as they are now, and each log that is delivered here."""
        return {
            "player": self.config.player,
            "topic": self.config.topic,
            "targets": {
                name: {**dataclasses.asdict(target), "paused": name in self._paused}
                for name, target in self._targets.items()
            },
            "playing": [dataclasses.asdict(each.status()) for each in self._drivers.values()],
        }


def _endpoint(name: str, target: TargetConfig, bounds: LogBounds) -> TargetEndpoint:
    is_earliest = target.first == "earliest"
    return TargetEndpoint(name, target.address, first_position(target.first, bounds), is_earliest)


def first_position(first: First, bounds: LogBounds) -> int:
    """The first position of a target without a stored one. `earliest` and `latest` are the log's bounds
    now."""
    if first == "earliest":
        return bounds.first_position
    return bounds.next_position if first == "latest" else first
