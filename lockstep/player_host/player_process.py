"""A whole player as a process: from its configuration to the logs that it delivers, or is a standby of.

Owns: the connections, the claims, the HTTP listener, one task per partition. Invariants: a partition that
can no longer be delivered here (its topic is gone, its routing failed) leaves the others alone, and the
status has the reason; when none is left, or the claims cannot be read, the process ends. A clean stop gives
all claims up.
Does not: look for partitions that come later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from lockstep.broker.metrics.http import HttpListener
from lockstep.broker.network.listeners import CannotListen
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import ClientError
from lockstep.kafka_client.security import ClientSecurity, InvalidProperty, UnreadablePropertyFile
from lockstep.player.driver.errors import PlayerStopped
from lockstep.player.source.interface import Source, SourceClosed, log_name
from lockstep.player.transport.factory import make_streams
from lockstep.player.transport.interface import Streams
from lockstep.player_host.admin import LogStatus, start_listener, status_of
from lockstep.player_host.claims import Claims, ClaimsUnusable
from lockstep.player_host.claims_topic import ClaimsTopic
from lockstep.player_host.config import PlayerConfig, PlayerConfigError, UnreadableConfigFile
from lockstep.player_host.config_file import check_tls
from lockstep.player_host.players import Players
from lockstep.player_host.remote_source import RemoteSource
from lockstep.player_host.routers import router_of, unroutable_reason
from lockstep.player_host.standby import StandbyState, stand_by

log = logging.getLogger("lockstep.player")

NOT_REMOTE: Final = (
    "'log group' is for a player inside the broker (`lockstep serve --set lockstep.player.config=FILE`): "
    "the order is that of the log's LSNs, and a Fetch, which `lockstep player run` reads with, brings none"
)


class CannotDeliver(Exception):
    """The process cannot begin, or continue; the text is for its operator."""


class PlayerProcess:
    """A player in a process of its own, from `start` to `stop`."""

    def __init__(self, config: PlayerConfig) -> None:
        """Raises PlayerConfigError: a routing function that is not there, an order that no Fetch has, wrong
        properties of the client."""
        if config.order != "partition":
            raise PlayerConfigError("order", NOT_REMOTE)
        try:
            ClientSecurity.of(config.client)
        except UnreadablePropertyFile as error:
            raise UnreadableConfigFile("client", str(error)) from None
        except InvalidProperty as error:
            raise PlayerConfigError("client", str(error)) from None
        check_tls(config)
        self.config = config
        self._client_id = f"lockstep-player-{config.player}"
        self._targets = dict(config.targets)
        self._route = router_of(config.route, self._targets)
        self._streams: Streams
        self._claims: Claims
        self._players: Players
        self._states: list[StandbyState] = []
        self._sources: list[RemoteSource] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._http: HttpListener | None = None
        self.address = ""
        """HOST:PORT of the HTTP listener, once it listens."""

    async def start(self) -> None:
        """Raises CannotDeliver; then `stop` still cleans up."""
        config = self.config
        self._streams = make_streams(config.transport, config.tls)
        self._players = Players(config, self._route, self._streams, self._targets)
        self._claims = Claims(
            ClaimsTopic(config.bootstrap, config.claims.topic, config.player, config.client),
            config.player,
            config.claims,
        )
        try:
            await self._listen()
            await self._claims.open()
            for partition in await self._partitions():
                source = await RemoteSource.open(
                    config.bootstrap,
                    config.topic,
                    partition,
                    client_id=self._client_id,
                    properties=config.client,
                )
                self._sources.append(source)
        except (ClientError, ClaimsUnusable, CannotListen, SourceClosed) as error:
            raise CannotDeliver(str(error)) from error
        for opened in self._sources:
            state = StandbyState(opened.partition, opened.log_id)
            self._states.append(state)
            self._tasks.append(asyncio.create_task(self._stand_by(state, opened)))
        self._players.warn_without_targets()

    async def wait_until_done(self) -> None:
        """Runs until no log is left to deliver here. Raises CannotDeliver with the reason."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise CannotDeliver(str(error)) from error
        raise CannotDeliver(
            "; ".join(f"{self.config.topic}-{each.partition}: {each.failed}" for each in self._states)
        )

    async def stop(self) -> None:
        """Releases all claims, and closes everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        await self._claims.close()
        for source in self._sources:
            await source.close()
        await self._streams.close()

    def status(self) -> dict[str, Any]:
        """For JSON: `GET /status`."""
        standings = map(self._log_status, self._states, self._sources)
        return status_of(self._players, standings, process=self._claims.process)

    # --- private ------------------------------------------------------------------------------------------

    def _log_status(self, state: StandbyState, source: RemoteSource) -> LogStatus:
        claim = self._claims.holder(state.log_id)
        problem = "" if state.failed else source.problem() or self._claims.problem(state.log_id)
        return LogStatus(
            state.partition,
            None,
            state.log_id,
            state.is_delivering,
            claim and claim.player,
            claim and claim.player_term,
            state.failed,
            problem,
        )

    async def _stand_by(self, state: StandbyState, source: Source) -> None:
        """Raises ClaimsUnusable."""
        try:
            await stand_by(state, source, self._claims, self._players, self.config.claims.lease_ms)
        except (PlayerStopped, SourceClosed) as error:
            state.failed = str(error)
            log.error("%s is no longer delivered here: %s", log_name(source), error)

    async def _listen(self) -> None:
        """Raises CannotListen."""
        if self.config.listen is None:
            return
        self._http, self.address = await start_listener(self.config, self._players, self.status)

    async def _partitions(self) -> list[int]:
        """Raises ClientError, CannotDeliver."""
        config = self.config
        async with Client(config.bootstrap, client_id=self._client_id, properties=config.client) as client:
            found = await client.topic(self.config.topic)
            configs = {each.name: each.value for each in await client.topic_configs(self.config.topic)}
        if why := unroutable_reason(self.config.route, configs.get("lockstep.locks")):
            log.warning("%s: %s", found.name, why)
        there = [each.index for each in found.partitions]
        configured = self.config.partitions
        for each in configured or ():
            if each not in there:
                raise CannotDeliver(f"partitions: topic {found.name} has no partition {each}")
        return there if configured is None else list(configured)
