"""The players inside one broker: each partition that is to be played is played where it is led.

Owns: which partitions of a topic are played by this process, from when it is led here until it is not.
Invariants: one playing per partition at a time, of one leadership; the next begins when the last has ended.
Leaderships are followed as the groups tell of them; topics, partitions and groups that come or go are looked
for once a second. A playing that ended by itself begins again after a while, longer each time that it fails.

Who plays needs no agreement of its own: the leader of the log does. The player_term is the log group's term,
which a committed entry of this leadership carries before the group says that it is led, and how often the
partition's playing was begun in it. So it is higher than any before, whoever led, and nothing rests on time:
a leader that does not know yet that it is none is refused by the targets as soon as the next one greets them.
Does not: play. Source: specs of the player; `broker/coordination/hosted.py` is the model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from broker.context import Services
from broker.metadata import TopicPartition
from lockstep.playing.in_process_source import InProcessSource
from player.playing.ended import Deposed, PlayingEnded
from player.source.seam import Source, SourceEnded
from storage.group import LogGroup

log = logging.getLogger("lockstep.player")

Play = Callable[[Source, int], Awaitable[None]]
"""Plays one log in a player_term until it is cancelled; when it ends it has let go of all but the source."""

BEGUN_BITS: Final = 24
"""Of a player_term: more often no playing begins in one leadership, at the pauses below, in 15 years."""

LOOK_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""Who played for so long and then failed is tried again as if it were for the first time."""


class Hosted:
    """The players of one topic in one broker, from `start` to `stop`.

    Args:
        topic: its name; it need not be there yet, and may be deleted and made anew.
        partitions: which of them; None for all there are and will be.
    """

    def __init__(
        self, services: Services, topic: str, play: Play, partitions: Iterable[int] | None = None
    ) -> None:
        self._services = services
        self._topic = topic
        self._play = play
        self._wanted = None if partitions is None else frozenset(partitions)
        self._playings: dict[tuple[bytes, int], _Playing] = {}
        """By topic id and partition; also those that are about to end."""
        self._player_terms: dict[tuple[bytes, int], int] = {}
        """The newest of each partition that was played here."""
        self._groups: set[LogGroup] = set()
        """Whose leaderships are followed."""
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow what this broker leads."""
        self._task = asyncio.ensure_future(self._follow())

    async def stop(self) -> None:
        """End all playings and wait for them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._listen_to(set())
        playings, self._playings = list(self._playings.values()), {}
        for playing in playings:
            playing.end()
        await asyncio.gather(*[each.task for each in playings], return_exceptions=True)

    @property
    def playing(self) -> list[Source]:
        """What is being played here now."""
        return [each.source for each in self._playings.values() if each.source is not None]

    # --- within -------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._look.clear()
            try:
                self._settle()
            except Exception:  # the next look may do better
                log.exception("the players of %s", self._topic)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), LOOK_SECONDS)

    def _settle(self) -> None:
        """Let what is led here be played, and nothing else."""
        led = {(each.topic.topic_id, each.index): each for each in self._partitions() if each.group.is_leader}
        for key, playing in list(self._playings.items()):
            if playing.task.done():
                del self._playings[key]
            elif key not in led or playing.term != led[key].group.term:
                playing.end()
        for key, partition in led.items():
            if key not in self._playings:
                begin = partial(self._begin, key)
                playing = self._playings[key] = _Playing(self._services, partition, begin)
                playing.task.add_done_callback(self._poke)

    async def _begin(self, key: tuple[bytes, int], source: Source, group_term: int) -> None:
        begun = max(self._player_terms.get(key, 0), group_term << BEGUN_BITS) + 1
        self._player_terms[key] = begun
        try:
            await self._play(source, begun)
        except Deposed as deposed:  # by one that plays elsewhere, and should not
            self._player_terms[key] = max(deposed.player_term, self._player_terms[key])
            raise

    def _partitions(self) -> list[TopicPartition]:
        """Those wanted of which this node has a copy."""
        topic = self._services.cluster.topic(self._topic)
        found = [] if topic is None else [each for each in topic.partitions if each.is_here]
        if self._wanted is not None:
            found = [each for each in found if each.index in self._wanted]
        self._listen_to({each.group for each in found})
        return found

    def _listen_to(self, groups: set[LogGroup]) -> None:
        for group in self._groups - groups:
            group.on_leading.remove(self._poke)
        for group in groups - self._groups:
            group.on_leading.append(self._poke)
        self._groups = groups

    def _poke(self, _: object) -> None:
        self._look.set()


class _Playing:
    """One partition during one leadership; again and again where it fails. Its end is its task's."""

    def __init__(self, services: Services, partition: TopicPartition, begin: Play) -> None:
        self._services = services
        self._partition = partition
        self._begin = begin
        self.term = partition.group.term
        self.source: InProcessSource | None = None
        self.task = asyncio.ensure_future(self._run())
        self._ending = False

    def end(self) -> None:
        """Let go, in its own time; once, so that a second call does not disturb it in that."""
        if not self._ending:
            self._ending = True
            self.task.cancel()

    async def _run(self) -> None:
        name = f"{self._partition.topic.name}-{self._partition.index}"
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            source = self.source = InProcessSource(self._services, self._partition)
            try:
                await self._begin(source, self.term)
                log.warning("%s: the playing ended", name)
            except (SourceEnded, PlayingEnded) as ended:
                log.warning("%s: the playing ended: %s", name, ended)
            except Exception:
                log.exception("%s: the playing failed", name)
            finally:
                self.source = None
                is_over = source.is_over
                await source.close()
            if is_over:
                return
            if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.info("%s is played again in %g s", name, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
