"""Plants in the player and in its targets' rule, held against the `player` workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

from lockstep.player.core import connections, delivery, recovery
from lockstep.player.core.messages import Batch, Part, dummy
from lockstep.player.core.player import Player
from lockstep.player.core.target import Target
from lockstep.player.core.target_queue import TargetQueue
from lockstep.player.core.transitions import QueueState
from lockstep.player.target.target_position import Accepted, TargetPosition
from lockstep.storage.lsn_reader import LsnFrames, LsnReader
from tests.sim.faces import Plant

Terms = tuple[int, int]


@contextmanager
def acknowledged_before_stored() -> Iterator[None]:
    """What is received counts as stored: heartbeats are answered with it."""
    real = TargetPosition.receive

    def receive(self: TargetPosition, terms: Terms, batch: Batch) -> Accepted:
        accepted = real(self, terms, batch)
        self.mark = accepted.mark
        return accepted

    with patch.object(TargetPosition, "receive", receive):
        yield


@contextmanager
def players_terms_not_checked() -> Iterator[None]:
    def known(self: Player, name: str, target_term: int, now_ms: int) -> Target | None:
        self._set_clock(now_ms)
        target = self.targets.get(name)
        return target if not self.deposed and target is not None and target.has_stream else None

    with patch.object(Player, "_current_target", known):
        yield


@contextmanager
def targets_terms_not_checked() -> Iterator[None]:
    real = TargetPosition.receive
    with patch.object(
        TargetPosition, "receive", lambda self, terms, batch: real(self, self.mark.terms, batch)
    ):
        yield


@contextmanager
def missed_instead(first: int, last: int) -> Iterator[None]:
    """What a target has missed begins, and ends, so much later."""
    real = recovery.missed_range

    def missed(last_ack: int, current_position: int) -> tuple[int, int]:
        begin, end = real(last_ack, current_position)
        return max(0, begin + first), end + last

    with patch.object(recovery, "missed_range", missed):
        yield


@contextmanager
def end_read_at_hello() -> Iterator[None]:
    """The end of a recovery is read when the target is greeted, before its queue takes anything."""
    greet, begin = connections._send_hello, recovery.begin
    ends: dict[tuple[int, str, int], int] = {}

    def greeting(player: Player, target: Target) -> None:
        greet(player, target)
        if player.started:
            ends[player.player_term, target.name, target.term] = player.current_position

    def beginning(player: Player, target: Target, position: int) -> None:
        current = player.current_position
        player.current_position = ends.get((player.player_term, target.name, target.term), current)
        begin(player, target, position)
        player.current_position = current

    with patch.object(connections, "_send_hello", greeting), patch.object(recovery, "begin", beginning):
        yield


@contextmanager
def dummies_first() -> Iterator[None]:
    """A dummy goes before what waits."""

    def push_dummies(player: Player) -> None:
        for target in player.targets.values():
            if target.accepts_main_stream and target.last_ack < player.current_position:
                target.queue.normal.parts.appendleft(dummy(player.current_position))

    with patch.object(delivery, "push_dummies", push_dummies):
        yield


@contextmanager
def any_acknowledgement_counts() -> Iterator[None]:
    """Whatever comes last is the last, from whichever stream."""
    real = delivery.on_acknowledged

    def acknowledged(self: Player, name: str, target_term: int, position: int, now_ms: int) -> None:
        target = self.targets.get(name)
        if target is not None and target.is_open and position <= target.queue.sent_position:
            target.last_ack = position - 1
            real(self, target, position)

    with patch.object(Player, "on_acknowledged", acknowledged):
        yield


@contextmanager
def suspended_with_its_queue() -> Iterator[None]:
    real = TargetQueue.suspend

    def suspend(self: TargetQueue) -> None:
        parts = list(self.normal.parts)
        real(self)
        for part in parts:
            self.normal.append(part)

    with patch.object(TargetQueue, "suspend", suspend):
        yield


@contextmanager
def popped_for_nothing() -> Iterator[None]:
    """A batch is taken before the stream can take it, and not written."""
    real = delivery.send_next

    def send_next(player: Player, target: Target) -> None:
        has_room = target.queue.popped_entries < player.settings.window.entries
        if target.writing and target.is_open and has_room:
            target.queue.next_batch(1, 1)
        real(player, target)

    with patch.object(delivery, "send_next", send_next):
        yield


@contextmanager
def dummy_not_stored() -> Iterator[None]:
    """A dummy is acknowledged, and the store's mark stays where the last part was."""
    real = TargetPosition.receive

    def receive(self: TargetPosition, terms: Terms, batch: Batch) -> Accepted:
        before = self.received_position
        accepted = real(self, terms, batch)
        kept = max((part.position for part in accepted.parts), default=before)
        return replace(accepted, mark=replace(accepted.mark, position=kept))

    def stored(self: TargetPosition, accepted: Accepted) -> int:
        self.mark = replace(self.mark, position=max(self.mark.position, self.received_position))
        return self.mark.position

    with patch.object(TargetPosition, "receive", receive), patch.object(TargetPosition, "on_stored", stored):
        yield


@contextmanager
def end_not_extended() -> Iterator[None]:
    """What overflows behind a recovery is dropped, and the recovery ends where it was to end."""

    def on_overflow(player: Player, target: Target) -> None:
        target.queue.drop_normal()
        recovery.advance(player, target)

    with patch.object(recovery, "on_overflow", on_overflow):
        yield


@contextmanager
def sent_again_after_a_restart() -> Iterator[None]:
    """The main stream brings a target what it had stored before the player began."""

    def push(self: Target, part: Part) -> None:
        if self.accepts_main_stream:
            self.queue.normal.append(part)

    with patch.object(Target, "push", push):
        yield


@contextmanager
def both_at_once() -> Iterator[None]:
    """A recovery is read to its end, so the queue is normal again: what was read still waits."""

    def complete_fetching(self: TargetQueue) -> None:
        self._transition(QueueState.NORMAL)

    with patch.object(TargetQueue, "complete_fetching", complete_fetching):
        yield


@contextmanager
def next_frame_left_out() -> Iterator[None]:
    """A read of the group's log goes on one frame too late."""
    real = LsnReader.note

    def note(self: LsnReader, lsn: int, index: int) -> None:
        real(self, lsn, index + 1)

    with patch.object(LsnReader, "note", note):
        yield


@contextmanager
def uncommitted_counts_as_read() -> Iterator[None]:
    """What is not committed is looked at. None of it is delivered, but LSNs of it count as read, which come
    again, after a change of the leader, as those of other records."""
    real = LsnReader.read

    async def read(self: LsnReader, lsn: int, max_bytes: int, wanted: Sequence[int]) -> LsnFrames:
        bold = copy(self)
        bold._group = SimpleNamespace(applied_index=self._log.last_index)  # type: ignore[assignment]
        return await real(bold, lsn, max_bytes, wanted)

    with patch.object(LsnReader, "read", read):
        yield


def _plant(name: str, what: str, apply: Callable[[], object], source: str, workload: str = "player") -> Plant:
    source = f"the specification: player, {source}"
    return Plant(f"player-{name}", what, apply, workload=workload, source=source)  # type: ignore[arg-type]


PLANTED = "planted faults"
GROUP = "player_group"
PLANTS = (
    _plant("ack-before-store", "what is received counts as stored", acknowledged_before_stored, PLANTED),
    _plant("term-not-checked", "the player hears older streams", players_terms_not_checked, PLANTED),
    _plant("target-term-not-checked", "a target hears older streams", targets_terms_not_checked, PLANTED),
    _plant("start-late", "a recovery begins one too late", partial(missed_instead, 1, 0), PLANTED),
    _plant("start-early", "a recovery begins one too early", partial(missed_instead, -1, 0), PLANTED),
    _plant("end-early", "a recovery ends one too early", partial(missed_instead, 0, -1), PLANTED),
    _plant("end-late", "a recovery ends one too late", partial(missed_instead, 0, 1), PLANTED),
    _plant("end-before-rf", "a recovery's end is read before the queue takes", end_read_at_hello, PLANTED),
    _plant("dummy-overtakes", "a dummy goes before what waits", dummies_first, PLANTED),
    _plant("late-ack", "late acknowledgements are accepted", any_acknowledgement_counts, PLANTED),
    _plant("suspend-keeps", "suspending keeps the queue", suspended_with_its_queue, PLANTED),
    _plant("popped-not-written", "a popped batch is never written", popped_for_nothing, PLANTED),
    _plant("dummy-not-stored", "a dummy is acknowledged and not stored", dummy_not_stored, PLANTED),
    _plant("end-not-extended", "an overflow does not extend the recovery", end_not_extended, "core"),
    _plant("stored-sent-again", "dispatch does not skip what is stored", sent_again_after_a_restart, "core"),
    _plant("normal-too-soon", "FC is left out", both_at_once, "core"),
    _plant("group-frame-left-out", "a read goes on a frame too late", next_frame_left_out, "core", GROUP),
    _plant("group-uncommitted", "uncommitted LSNs count as read", uncommitted_counts_as_read, "core", GROUP),
)
