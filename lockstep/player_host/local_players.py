"""The players inside one broker: each log that is to be played is played where it is led.

Owns: which logs of a topic are played by this process, from when they are led here until they are not: each
partition, or all partitions of a log group together. Invariants: one player per log at a time, of one
leadership; the next begins when the last has ended. Leaderships are followed as the groups tell of them;
topics, partitions and groups that come or go are looked for once a second. A player that ended by itself
begins again after a while, longer each time that it fails.

Who plays needs no agreement of its own: the leader of the log does. The player_term is the log group's term,
which a committed entry of this leadership carries before the group says that it is led, and how often the
log's delivery was begun in it. So it is higher than any before, whoever led, and nothing rests on time: a
leader that does not know yet that it is none is refused by the targets as soon as the next one greets them.
Does not: play. Source: docs/player.md, "Inside the broker"; `broker/coordination/coordinator_shard.py` is the
model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.metadata.metadata_cache import MetadataCache, TopicPartition
from lockstep.player.driver.errors import Deposed, PlayerStopped
from lockstep.player.source.interface import Source, SourceClosed, log_name
from lockstep.player_host.config import Order
from lockstep.player_host.group_source import GroupSource
from lockstep.player_host.in_process_source import InProcessSource
from lockstep.storage.log_group import LogGroup

log = logging.getLogger("lockstep.player")

Play = Callable[[Source, int], Awaitable[None]]
"""Plays one log in a player_term until it is cancelled; when it ends it has let go of all but the source."""

Key = tuple[bytes, int]
"""Of a log: the topic's id, and which partition or log group."""

BEGUN_BITS: Final = 24
"""Of a player_term: more often no delivery begins in one leadership, at the pauses below, in 15 years."""

LOOK_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""Who played for so long and then failed is tried again as if it were for the first time."""


class LocalSource(Source, Protocol):
    """A source that knows whether it has ended for good."""

    @property
    def is_over(self) -> bool: ...


class Led(NamedTuple):
    """A log that this node may play while it leads its log group."""

    group: LogGroup
    open: Callable[[], LocalSource]


class LocalPlayers:
    """The players of one topic in one broker, from `start` to `stop`.

    Args:
        topic: its name; it need not be there yet, and may be deleted and made anew.
        partitions: which of them; None for all there are and will be.
        order: of each partition, or of each log group.
    """

    def __init__(
        self,
        cluster: MetadataCache,
        fetch_purgatory: FetchPurgatory,
        topic: str,
        play: Play,
        partitions: Iterable[int] | None = None,
        order: Order = "partition",
    ) -> None:
        self._cluster = cluster
        self._fetch_purgatory = fetch_purgatory
        self._topic = topic
        self._play = play
        self._partition_filter = None if partitions is None else frozenset(partitions)
        self._order = order
        self._players: dict[Key, _LocalPlayer] = {}
        """Also those that are about to end."""
        self._player_terms: dict[Key, int] = {}
        """The newest of each log that was played here."""
        self._groups: set[LogGroup] = set()
        """Whose leaderships are followed."""
        self._check_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow what this broker leads."""
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

    # --- within -------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._check_due.clear()
            try:
                self._settle()
            except Exception:  # the next look may do better
                log.exception("the players of %s", self._topic)
            with contextlib.suppress(TimeoutError):  # Python 3.11's wait_for may swallow a cancellation
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._check_due.wait()

    def _settle(self) -> None:
        """Let what is led here be played, and nothing else."""
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

    def _each_of(self, partitions: Iterable[TopicPartition]) -> Mapping[Key, Led]:
        return {
            (each.topic.topic_id, each.index): Led(
                each.group, partial(InProcessSource, self._cluster, self._fetch_purgatory, each)
            )
            for each in partitions
        }

    def _groups_of(self, partitions: Iterable[TopicPartition]) -> Mapping[Key, Led]:
        return {
            (each.topic.topic_id, each.group.group_id): Led(
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
        begun = max(self._player_terms.get(key, 0), group_term << BEGUN_BITS) + 1
        self._player_terms[key] = begun
        log.info("%s: played here in term %d", log_name(source), begun)
        try:
            await self._play(source, begun)
        except Deposed as deposed:  # by one that plays elsewhere, and should not
            self._player_terms[key] = max(deposed.player_term, self._player_terms[key])
            raise

    def _partitions(self) -> list[TopicPartition]:
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
    """One log during one leadership; again and again where it fails. Its end is its task's."""

    def __init__(self, led: Led, begin: Play) -> None:
        self._led = led
        self._begin = begin
        self.term = led.group.term
        self.source: LocalSource | None = None
        self.failed: tuple[LocalSource, str] | None = None
        """The last time, if it is to begin again."""
        self.task = asyncio.ensure_future(self._run())
        self._ending = False

    def end(self) -> None:
        """Let go, in its own time; once, so that a second call does not disturb it in that."""
        if not self._ending:
            self._ending = True
            self.task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            source = self.source = self._led.open()
            name = log_name(source)
            why = "the playing ended"
            try:
                await self._begin(source, self.term)
                log.warning("%s: the playing ended", name)
            except (SourceClosed, PlayerStopped) as ended:
                why = str(ended)
                log.warning("%s: the playing ended: %s", name, ended)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                log.exception("%s: the playing failed", name)
            finally:
                self.source = None
                is_over = source.is_over
                await source.close()
            if is_over:
                return
            self.failed = source, why
            if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.info("%s is played again in %g s", name, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
