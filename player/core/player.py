"""One player of one log: the state, its inputs, and the module that handles each.

Each call is one step without I/O; its actions come out of `ready`, to be called after each. An event of a
stream carries the target's term, and is dropped where that is not the current one. The player keeps nothing
on a disk: positions are the targets' own. Each concern has its module: `connections`, `recovery`, `delivery`,
`target_queue`, `health`. Only these change the attributes; the shell reads them and calls methods. The shape
is that of `storage/raft`. Source: LogPlayer paper, algorithms 1 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.player.core import connections, delivery, recovery
from lockstep.player.core.messages import Entry
from lockstep.player.core.player_state import PlayerState
from lockstep.player.core.ready import PlayerReady
from lockstep.player.core.settings import NEVER_MS
from lockstep.player.core.target import LinkState, Target
from lockstep.player.core.transitions import QueueState


class Player(PlayerState):
    """See the module, and the package for what a shell does.

    Args:
        log_id: cluster, topic id and partition, or the log group in place of the partition where its
            partitions are delivered in its order (`player/source/log_id.py`); a target keeps a position for
            each.
        player_term: of a committed record, higher than that of every player before.
        route: the parts of an entry. Its errors, and BadRoute, leave `feed` and `on_fetched` with nothing
            done, and the player cannot continue.
        now_ms: a monotonic clock, as in every later call.
        random: `random(n)` gives a number from 0 to n - 1.
    """

    __slots__ = ()

    # --- queries ------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """True while more may be fed: some target in the normal state has less than half its bound queued."""
        half_entries = self.settings.normal.entries // 2
        half_bytes = self.settings.normal.size_bytes // 2
        following = [
            each.queue.normal for each in self.targets.values() if each.queue.state is QueueState.NORMAL
        ]
        room = [len(each) <= half_entries and each.size_bytes <= half_bytes for each in following]
        return self.started and not self.deposed and (not room or any(room))

    @property
    def deadline_ms(self) -> int:
        """The time of the next `tick`; NEVER_MS where nothing is due."""
        if self.deposed:
            return NEVER_MS
        due_ms = min([target.health.next_event_ms for target in self.targets.values()], default=NEVER_MS)
        waits = not self.started and any(each.link is LinkState.ANSWERED for each in self.targets.values())
        return min(due_ms, self.start_due_ms) if waits else due_ms

    # --- inputs: the log ----------------------------------------------------------------------------------

    def feed(self, entries: Sequence[Entry], through_position: int, now_ms: int) -> None:
        """The main stream has read everything after the current position up to `through_position`."""
        self._set_clock(now_ms)
        if self.started and not self.deposed:
            delivery.queue_chunk(self, entries, through_position)

    def feed_lost(self, first_position: int, now_ms: int) -> None:
        """The main stream's next entries are deleted; the log begins at `first_position`.

        A target that may have needed them is reconnected: its stored position decides whether it is stopped.
        """
        self._set_clock(now_ms)
        if not self.started or self.deposed or first_position <= self.current_position + 1:
            return
        for target in self.targets.values():
            if target.link is LinkState.OPEN and target.last_ack + 1 < first_position:
                why = f"its next entries are deleted, the log begins at {first_position}"
                connections.abort(self, target, why)
        self.current_position = first_position - 1

    def on_fetched(
        self, name: str, target_term: int, entries: Sequence[Entry], through_position: int, now_ms: int
    ) -> None:
        """A Fetch has read everything from its first position to `through_position`."""
        target = self._open_target(name, target_term, now_ms)
        if target is None or not target.fetching:
            return
        if recovery.on_fetched(self, target, entries, through_position):
            delivery.send_next(self, target)

    def on_fetch_failed(self, name: str, target_term: int, now_ms: int) -> None:
        """A Fetch found nothing to read: it is repeated at the next heartbeat."""
        target = self._open_target(name, target_term, now_ms)
        if target is not None:
            target.fetching = False

    def on_range_lost(self, name: str, target_term: int, now_ms: int) -> None:
        """A Fetch's range is deleted: the target is reconnected, and its position decides what follows."""
        target = self._open_target(name, target_term, now_ms)
        if target is not None:
            connections.abort(self, target, "the entries it has missed are deleted from the log")

    # --- inputs: the streams ------------------------------------------------------------------------------

    def on_connected(
        self,
        name: str,
        target_term: int,
        position: int,
        first_position: int,
        next_position: int,
        now_ms: int,
    ) -> None:
        """A Hello has its response: the target has stored everything up to `position`.

        The log's bounds, `first_position` to before `next_position`, are read after the response came.
        """
        target = self._current_target(name, target_term, now_ms)
        if target is not None and target.link is LinkState.HANDSHAKE:
            connections.on_greeted(self, target, position, first_position, next_position)
            delivery.send_next(self, target)

    def on_disconnected(self, name: str, target_term: int, now_ms: int) -> None:
        """A stream broke, could not be opened, or was closed by the target."""
        target = self._current_target(name, target_term, now_ms)
        if target is not None:
            target.link = LinkState.DISCONNECTED  # there is nothing left to close
            connections.abort(self, target, "")  # the shell knows the reason

    def on_stale(self, name: str, target_term: int, player_term: int, now_ms: int) -> None:
        """The target serves a stream with a higher pair of terms, whose `player_term` this is."""
        target = self._current_target(name, target_term, now_ms)
        if target is None:
            return
        if player_term > self.player_term:
            self.deposed = self.outbox.deposed = True
            for each in self.targets.values():
                connections.close(self, each)
        else:
            why = f"another player has term {player_term}, too, or another target has the same store"
            connections.stop(self, target, why)

    def on_written(self, name: str, target_term: int, now_ms: int) -> None:
        """The write of the last batch has completed; that is no acknowledgement."""
        target = self._open_target(name, target_term, now_ms)
        if target is not None:
            target.writing = False
            delivery.send_next(self, target)

    def on_acknowledged(self, name: str, target_term: int, position: int, now_ms: int) -> None:
        """The target has stored everything up to `position`; also its response to a heartbeat."""
        target = self._open_target(name, target_term, now_ms)
        if target is not None:
            delivery.on_acknowledged(self, target, position)

    # --- inputs: time, and the set of targets -------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Handles the passing of time; sooner than `deadline_ms` nothing happens."""
        self._set_clock(now_ms)
        if not self.deposed:
            for target in self.targets.values():
                connections.check(self, target)
                delivery.push_quiet_dummy(self, target)
            connections.begin(self)

    def add(self, name: str, first_position: int, now_ms: int) -> None:
        """Add a target; without a stored position it begins at `first_position`. ValueError: it exists."""
        self._set_clock(now_ms)
        if name in self.targets:
            raise ValueError(f"there is a target {name!r} already")
        self.targets[name] = Target(name, first_position, self.now_ms)
        # it may be a removed target under another name, whose store has that one's terms
        self.terms[name] = max(self.max_removed_term, *self.terms.values(), 0)

    def remove(self, name: str, now_ms: int) -> None:
        """Remove a target; it keeps its stored position. Raises KeyError: there is none."""
        self._set_clock(now_ms)
        connections.close(self, self.targets.pop(name))
        self.max_removed_term = max(self.max_removed_term, self.terms.pop(name))
        connections.begin(self)

    def stop(self, name: str, reason: str, now_ms: int) -> None:
        """Send nothing to a target until it is resumed. Raises KeyError: there is none."""
        self._set_clock(now_ms)
        connections.stop(self, self.targets[name], reason)

    def resume(self, name: str, now_ms: int) -> None:
        """Try a stopped target again. Raises KeyError: there is none."""
        self._set_clock(now_ms)
        target = self.targets[name]
        if target.link is LinkState.STOPPED:
            target.link = LinkState.DISCONNECTED
            target.stopped_because = ""
            target.health.next_event_ms = self.now_ms

    # --- output -------------------------------------------------------------------------------------------

    def ready(self) -> PlayerReady:
        """Everything to do since the last call."""
        ready, self.outbox = self.outbox, PlayerReady()
        return ready

    # --- private ------------------------------------------------------------------------------------------

    def _set_clock(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def _current_target(self, name: str, target_term: int, now_ms: int) -> Target | None:
        """The target, if the event is of its current stream."""
        self._set_clock(now_ms)
        target = self.targets.get(name)
        if self.deposed or target is None or target.term != target_term or not target.has_stream:
            return None
        return target

    def _open_target(self, name: str, target_term: int, now_ms: int) -> Target | None:
        """The same, if that stream is open."""
        target = self._current_target(name, target_term, now_ms)
        return target if target is not None and target.link is LinkState.OPEN else None
