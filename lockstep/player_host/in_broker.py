"""The player that `lockstep serve` runs in its own process (`lockstep.player.config`).

Owns: what the delivery of a configured topic by this broker, where it leads, needs: transport, router,
targets, the HTTP listener. Invariants: settings that cannot be used are reported before the broker starts;
all deliveries have ended before the broker stops. Does not: claim anything (`local_players` has the reason),
or connect to a broker: `bootstrap` and `claims` of the configuration have no effect here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from lockstep.broker.metadata.metadata_cache import Topic
from lockstep.broker.metrics.http import HttpListener
from lockstep.broker.network.listeners import CannotListen
from lockstep.broker.server import Broker, CannotStart
from lockstep.player.source.interface import Source
from lockstep.player.transport.factory import make_streams
from lockstep.player_host.admin import LogStatus, start_listener, status_of
from lockstep.player_host.config import PlayerConfig
from lockstep.player_host.config_file import check_tls
from lockstep.player_host.local_players import LocalPlayers
from lockstep.player_host.players import Players
from lockstep.player_host.routers import router_of, unroutable_reason

log = logging.getLogger("lockstep.player")


class PlayerInBroker:
    """A `lockstep.broker.main.Companion`: entered, it delivers; left, it has released everything.

    Raises PlayerConfigError for a routing function or a key that does not exist.
    """

    def __init__(self, config: PlayerConfig) -> None:
        check_tls(config)
        self.config = config
        self._targets = dict(config.targets)
        self._route = router_of(config.route, self._targets)
        self._warned_of = b""
        """The id of the last topic that was warned of."""

    @contextlib.asynccontextmanager
    async def __call__(self, broker: Broker) -> AsyncIterator[Players]:
        """Raises CannotStart where it cannot listen."""
        streams = make_streams(self.config.transport, self.config.tls)
        players = Players(self.config, self._route, streams, self._targets)
        config, assembly = self.config, broker.assembly

        async def deliver(source: Source, player_term: int) -> None:
            self._warn(assembly.cluster.topic(config.topic))
            await players.deliver(source, player_term)

        local_players = LocalPlayers(
            assembly.cluster,
            assembly.fetch_purgatory,
            config.topic,
            deliver,
            config.partitions,
            config.order,
        )
        http = await self._listen(players, local_players)
        local_players.start()
        players.warn_without_targets()
        try:
            yield players
        finally:
            if http is not None:
                await http.close()
            await local_players.stop()
            await streams.close()

    def _warn(self, topic: Topic | None) -> None:
        """Warns, once for each topic, of records that cannot be routed."""
        if topic is None or topic.topic_id == self._warned_of:
            return
        if why := unroutable_reason(self.config.route, topic.config.lockstep_locks):
            self._warned_of = topic.topic_id
            log.warning("%s: %s", topic.name, why)

    async def _listen(self, players: Players, local_players: LocalPlayers) -> HttpListener | None:
        if self.config.listen is None:
            return None
        try:
            http, address = await start_listener(
                self.config, players, lambda: _status(players, local_players)
            )
        except CannotListen as error:
            raise CannotStart(f"the player: {error}") from error
        log.info("serving status and metrics of player %s on %s", self.config.player, address)
        return http


def _status(players: Players, local_players: LocalPlayers) -> dict[str, Any]:
    """The leader of a log delivers it. A failure is shown while its retry is pending."""
    player = players.config.player
    standings = [
        LogStatus(
            each.source.partition,
            each.source.log_group,
            each.core.log_id,
            True,
            player,
            each.core.player_term,
        )
        for each in players.drivers.values()
    ]
    standings += [
        LogStatus(source.partition, source.log_group, source.log_id, False, player, None, why)
        for source, why in local_players.failed_sources
    ]
    return status_of(players, standings)
