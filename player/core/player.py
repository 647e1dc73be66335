"""One player of one log: the state, what may be told to it, and where each of these goes.

Each call is one step and takes no time; what is to be done comes out of `ready`, to be asked after each. What
a stream says carries the target's term, and is dropped where that is not the current one. The player keeps
nothing on a disk: positions are the targets' own. Each concern has its module: `connecting`, `recovery`,
`dispatching`, `target_queue`, `health`. The attributes are theirs to change; the shell reads them and calls
methods. The shape is that of `storage/raft`. Source: seed 000, algorithms 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from player.core import connecting, dispatching, recovery
from player.core.messages import NOTHING, Entry
from player.core.ready import Ready
from player.core.routing import Router
from player.core.settings import NEVER_MS, PlayerSettings
from player.core.target import Link, Target
from player.core.transitions import State


class Player:
    """See the module, and the package for what a shell does.

    Args:
        log_id: cluster, topic id and partition, or the log group in place of the partition where its
            partitions are played in its order (`player/source/log_id.py`); a target keeps a mark for each.
        player_term: of a committed record, higher than that of every player before.
        route: which parts an entry has. What it raises, and BadRoute, leaves `feed` and `fetched` with
            nothing done, and there is no going on.
        now_ms: a monotonic clock, as in every later call.
        draw: `draw(n)` gives a number from 0 to n - 1.
    """

    __slots__ = (
        "_former_term",
        "current_position",
        "deposed",
        "draw",
        "log_id",
        "now_ms",
        "outbox",
        "player_term",
        "route",
        "settings",
        "since_dummies",
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
        draw: Callable[[int], int],
    ) -> None:
        self.log_id = log_id
        self.player_term = player_term
        self.route = route
        self.settings = settings
        self.now_ms = now_ms
        self.draw = draw
        self.targets: dict[str, Target] = {}
        self.terms: dict[str, int] = {}
        """The newest term of each target."""
        self._former_term = 0
        """The highest that a removed target had."""
        self.started = False
        self.start_due_ms = now_ms + settings.start_timeout_ms
        self.current_position = NOTHING
        """Of the last entry that the main stream has brought; what precedes it, at the start."""
        self.since_dummies = 0
        self.unrouted = 0
        """Parts for targets that there are not."""
        self.deposed = False
        self.outbox = Ready()

    # --- what may be asked --------------------------------------------------------------------------------

    @property
    def wants_entries(self) -> bool:
        """Whether to feed more now. Not where every target that follows has half of what may wait for it."""
        half_entries = self.settings.normal.entries // 2
        half_bytes = self.settings.normal.size_bytes // 2
        following = [each.queue.normal for each in self.targets.values() if each.queue.state is State.NORMAL]
        room = [len(each) <= half_entries and each.size_bytes <= half_bytes for each in following]
        return self.started and not self.deposed and (not room or any(room))

    @property
    def deadline_ms(self) -> int:
        """When `tick` is next wanted; NEVER_MS where nothing is due."""
        if self.deposed:
            return NEVER_MS
        due_ms = min([target.health.due_ms for target in self.targets.values()], default=NEVER_MS)
        waits = not self.started and any(each.link is Link.ANSWERED for each in self.targets.values())
        return min(due_ms, self.start_due_ms) if waits else due_ms

    # --- inputs: the log ----------------------------------------------------------------------------------

    def feed(self, entries: Sequence[Entry], through_position: int, now_ms: int) -> None:
        """The main stream has read everything after the current position up to `through_position`."""
        self._at(now_ms)
        if self.started and not self.deposed:
            dispatching.feed(self, entries, through_position)

    def feed_lost(self, first_position: int, now_ms: int) -> None:
        """What the main stream has to read next is gone; the log begins at `first_position`.

        Who may have needed it is asked where it stands: that decides who is stopped.
        """
        self._at(now_ms)
        if not self.started or self.deposed or first_position <= self.current_position + 1:
            return
        for target in self.targets.values():
            if target.link is Link.OPEN and target.last_ack + 1 < first_position:
                why = f"what it was to get next is deleted, the log begins at {first_position}"
                connecting.give_up(self, target, why)
        self.current_position = first_position - 1

    def fetched(
        self, name: str, target_term: int, entries: Sequence[Entry], through_position: int, now_ms: int
    ) -> None:
        """A Fetch is answered: everything from its first position to `through_position`."""
        target = self._open(name, target_term, now_ms)
        if target is None or not target.fetching:
            return
        if recovery.fetched(self, target, entries, through_position):
            dispatching.send_next(self, target)

    def fetch_failed(self, name: str, target_term: int, now_ms: int) -> None:
        """A Fetch found nothing to read: it comes again with the next heartbeat."""
        target = self._open(name, target_term, now_ms)
        if target is not None:
            target.fetching = False

    def range_lost(self, name: str, target_term: int, now_ms: int) -> None:
        """What a Fetch wanted is gone: the target is asked where it stands, which says what is wrong."""
        target = self._open(name, target_term, now_ms)
        if target is not None:
            connecting.give_up(self, target, "what it has missed is deleted from the log")

    # --- inputs: the streams ------------------------------------------------------------------------------

    def connected(
        self,
        name: str,
        target_term: int,
        position: int,
        first_position: int,
        next_position: int,
        now_ms: int,
    ) -> None:
        """A Hello is answered: the target has stored everything up to `position`.

        What the log has, from `first_position` to before `next_position`, is read after the answer came.
        """
        target = self._known(name, target_term, now_ms)
        if target is not None and target.link is Link.GREETING:
            connecting.answered(self, target, position, first_position, next_position)
            dispatching.send_next(self, target)

    def disconnected(self, name: str, target_term: int, now_ms: int) -> None:
        """A stream broke, could not be opened, or was closed by the target."""
        target = self._known(name, target_term, now_ms)
        if target is not None:
            target.link = Link.AWAY  # there is nothing left to close
            connecting.give_up(self, target, "")  # who says so knows why

    def refused(self, name: str, target_term: int, player_term: int, now_ms: int) -> None:
        """The target serves a stream with a higher pair of terms, whose `player_term` this is."""
        target = self._known(name, target_term, now_ms)
        if target is None:
            return
        if player_term > self.player_term:
            self.deposed = self.outbox.deposed = True
            for each in self.targets.values():
                connecting.leave(self, each)
        else:
            why = f"somebody else plays in term {player_term}, too, or another target has the same store"
            connecting.stop(self, target, why)

    def written(self, name: str, target_term: int, now_ms: int) -> None:
        """The write of the last batch has completed, which says nothing about its delivery."""
        target = self._open(name, target_term, now_ms)
        if target is not None:
            target.writing = False
            dispatching.send_next(self, target)

    def acknowledged(self, name: str, target_term: int, position: int, now_ms: int) -> None:
        """The target has stored everything up to `position`; also how it answers a heartbeat."""
        target = self._open(name, target_term, now_ms)
        if target is not None:
            dispatching.acknowledged(self, target, position)

    # --- inputs: time, and who is there -------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Time has passed; sooner than `deadline_ms` nothing happens."""
        self._at(now_ms)
        if not self.deposed:
            for target in self.targets.values():
                connecting.look(self, target)
                dispatching.push_quiet_dummy(self, target)
            connecting.begin(self)

    def add(self, name: str, first_position: int, now_ms: int) -> None:
        """One more target; without a mark it begins at `first_position`. Raises ValueError: it is there."""
        self._at(now_ms)
        if name in self.targets:
            raise ValueError(f"there is a target {name!r} already")
        self.targets[name] = Target(name, first_position, self.now_ms)
        # it may be where another one was, under another name, whose terms are stored there
        self.terms[name] = max(self._former_term, *self.terms.values(), 0)

    def remove(self, name: str, now_ms: int) -> None:
        """Its mark stays with it. Raises KeyError: there is none."""
        self._at(now_ms)
        connecting.leave(self, self.targets.pop(name))
        self._former_term = max(self._former_term, self.terms.pop(name))
        connecting.begin(self)

    def stop(self, name: str, reason: str, now_ms: int) -> None:
        """Send nothing to a target until it is resumed. Raises KeyError: there is none."""
        self._at(now_ms)
        connecting.stop(self, self.targets[name], reason)

    def resume(self, name: str, now_ms: int) -> None:
        """Try a stopped target again. Raises KeyError: there is none."""
        self._at(now_ms)
        target = self.targets[name]
        if target.link is Link.STOPPED:
            target.link = Link.AWAY
            target.stopped_because = ""
            target.health.due_ms = self.now_ms

    # --- output -------------------------------------------------------------------------------------------

    def ready(self) -> Ready:
        """Everything to do since the last call."""
        ready, self.outbox = self.outbox, Ready()
        return ready

    # --- within -------------------------------------------------------------------------------------------

    def _at(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def _known(self, name: str, target_term: int, now_ms: int) -> Target | None:
        """The target, if this is said of its current stream."""
        self._at(now_ms)
        target = self.targets.get(name)
        if self.deposed or target is None or target.term != target_term or not target.has_stream:
            return None
        return target

    def _open(self, name: str, target_term: int, now_ms: int) -> Target | None:
        """The same, where it is being sent entries."""
        target = self._known(name, target_term, now_ms)
        return target if target is not None and target.link is Link.OPEN else None
