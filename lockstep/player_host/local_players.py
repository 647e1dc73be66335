"""The players inside one broker: the leader of each log delivers it.

Owns: the deliveries of a topic's logs by this process, while it leads them: each partition, or all partitions
of a log group together. Invariants: one player per log at a time, of one leadership; the next begins when the
last has ended. Changes of leadership are followed at once; new and deleted topics, partitions and groups are
looked for once a second. A player that failed begins again after a pause, longer each time that it fails.

Players need no election of their own: the leader of the log delivers it. The player_term is the log group's
term, which a committed entry of this leadership carries before the group counts as led, and the number of
deliveries begun in it. So it is higher than any before, and nothing depends on clocks: targets reject a
deposed leader as soon as the next one has connected. Does not: deliver. Source: docs/player.md, "Inside the
broker"; `broker/coordination/coordinator_shard.py` is the model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.player.driver.errors import Deposed, PlayerStopped
from lockstep.player.source.interface import Source, SourceClosed, log_name
from lockstep.player_host.config import Order
from lockstep.player_host.group_source import GroupSource
from lockstep.player_host.in_process_source import InProcessSource
from lockstep.storage.log_group import LogGroup

log = logging.getLogger("lockstep.player")

Deliver = Callable[[Source, int], Awaitable[None]]
"""Delivers one log in a player_term until cancelled; afterwards only the source is still open."""

Key = tuple[bytes, int]
"""A log: the topic's id, and the partition index or log group."""

DELIVERY_BITS: Final = 24
"""The bits of a player_term that count deliveries: enough for 15 years of one leadership, at the pauses
below."""

POLL_INTERVAL_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A delivery that lasted this long and then fails is retried after the first pause."""


class LocalSource(Source, Protocol):
    """A source that knows whether it has ended permanently."""

    @property
    def is_over(self) -> bool: ...


class LedLog(NamedTuple):
    """A log that this node may deliver while it leads its log group."""

    group: LogGroup
    open: Callable[[], LocalSource]


class LocalPlayers:
    """The players of one topic in one broker, from `start` to `stop`.

    Args:
        topic: its name; it need not exist yet, and may be deleted and re-created.
        partitions: their indexes; None for all present and future ones.
        order: of each partition, or of each log group.
    """

    def __init__(
        self,
        cluster: MetadataCache,
        fetch_purgatory: FetchPurgatory,
        topic: str,
        deliver: Deliver,
        partitions: Iterable[int] | None = None,
        order: Order = "partition",
    ) -> None:
        self._cluster = cluster
        self._fetch_purgatory = fetch_purgatory
        self._topic = topic
        self._deliver = deliver
        self._partition_filter = None if partitions is None else frozenset(partitions)
        self._order = order
        self._players: dict[Key, _LocalPlayer] = {}
        """The players by log, with those that are ending."""
        self._player_terms: dict[Key, int] = {}
        """The newest player_term of each log that was delivered here."""
        self._groups: set[LogGroup] = set()
        """The log groups whose leaderships are followed."""
        self._check_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to follow the leaderships of this broker."""
        self._task = asyncio.ensure_future(self._follow())

    async def stop(self) -> None:
        """End all players and wait for them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._listen_to(set())
        players, self._players = list(self._players.values()), {}
        for player in players:
            player.end()
        await asyncio.gather(*[each.task for each in players], return_exceptions=True)

    @property
    def active_sources(self) -> list[Source]:
        """The sources that are being delivered here now."""
        return [each.source for each in self._players.values() if each.source is not None]

    @property
    def failed_sources(self) -> list[tuple[Source, str]]:
        """Logs whose delivery here has failed, with the reason; it is retried. The sources are closed, and
        only identify the logs."""
        players = self._players.values()
        return [each.failed for each in players if each.source is None and each.failed is not None]

    # --- private ------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._check_due.clear()
            try:
                self._update_players()
            except Exception:  # the next iteration may succeed
                log.exception("the players of %s", self._topic)
            with contextlib.suppress(TimeoutError):  # Python 3.11's wait_for may swallow a cancellation
                async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                    await self._check_due.wait()

    def _update_players(self) -> None:
        """Starts and ends players: every log that is led here is delivered, and no other."""
        partitions = [each for each in self._partitions() if each.group.is_leader]
        led = self._groups_of(partitions) if self._order == "log group" else self._each_of(partitions)
        for key, player in list(self._players.items()):
            if player.task.done():
                del self._players[key]
            elif key not in led or player.term != led[key].group.term:
                player.end()
        for key, each in led.items():
            if key not in self._players:
                player = self._players[key] = _LocalPlayer(each, partial(self._begin, key))
                player.task.add_done_callback(self._wake)

    def _each_of(self, partitions: Iterable[Partition]) -> Mapping[Key, LedLog]:
        return {
            (each.topic.topic_id, each.index): LedLog(
                each.group, partial(InProcessSource, self._cluster, self._fetch_purgatory, each)
            )
            for each in partitions
        }

    def _groups_of(self, partitions: Iterable[Partition]) -> Mapping[Key, LedLog]:
        return {
            (each.topic.topic_id, each.group.group_id): LedLog(
                each.group,
                partial(
                    GroupSource,
                    self._cluster,
                    self._fetch_purgatory,
                    each.topic,
                    each.group,
                    self._partition_filter,
                ),
            )
            for each in partitions
        }

    async def _begin(self, key: Key, source: Source, group_term: int) -> None:
        player_term = max(self._player_terms.get(key, 0), group_term << DELIVERY_BITS) + 1
        self._player_terms[key] = player_term
        log.info("%s: delivered here in term %d", log_name(source), player_term)
        try:
            await self._deliver(source, player_term)
        except Deposed as deposed:  # by a player elsewhere, which should not run
            self._player_terms[key] = max(deposed.player_term, self._player_terms[key])
            raise

    def _partitions(self) -> list[Partition]:
        """The configured partitions of which this node has a copy."""
        topic = self._cluster.topic(self._topic)
        found = [] if topic is None else [each for each in topic.partitions if each.is_here]
        if self._partition_filter is not None:
            found = [each for each in found if each.index in self._partition_filter]
        self._listen_to({each.group for each in found})
        return found

    def _listen_to(self, groups: set[LogGroup]) -> None:
        for group in self._groups - groups:
            group.on_leading.remove(self._wake)
        for group in groups - self._groups:
            group.on_leading.append(self._wake)
        self._groups = groups

    def _wake(self, _: object) -> None:
        self._check_due.set()


class _LocalPlayer:
    """The delivery of one log during one leadership, retried when it fails. It ends with its task."""

    def __init__(self, led: LedLog, begin: Deliver) -> None:
        self._led = led
        self._begin = begin
        self.term = led.group.term
        self.source: LocalSource | None = None
        self.failed: tuple[LocalSource, str] | None = None
        """The last failed delivery, if it is retried."""
        self.task = asyncio.ensure_future(self._run())
        self._ending = False

    def end(self) -> None:
        """Begins to end; a second call does nothing, so as not to disturb the end."""
        if not self._ending:
            self._ending = True
            self.task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            source = self.source = self._led.open()
            name = log_name(source)
            reason = "the delivery ended"
            try:
                await self._begin(source, self.term)
                log.warning("%s: the delivery ended", name)
            except (SourceClosed, PlayerStopped) as ended:
                reason = str(ended)
                log.warning("%s: the delivery ended: %s", name, ended)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                log.exception("%s: the delivery failed", name)
            finally:
                self.source = None
                is_over = source.is_over
                await source.close()
            if is_over:
                return
            self.failed = source, reason
            if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.info("%s: the delivery is retried in %g s", name, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
