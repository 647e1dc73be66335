"""The seed's target queue: order, bounds, states, and what an acknowledgement frees."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockstep.player.core.messages import Part
from lockstep.player.core.settings import Bound
from lockstep.player.core.target_queue import PartQueue, TargetQueue
from lockstep.player.core.transitions import IllegalQueueTransition, QueueState

MUCH = 1 << 30


def part(position: int, size_bytes: int = 10) -> Part:
    return Part(position, b"x", size_bytes)


def normal(*positions: int, size_bytes: int = 10) -> TargetQueue:
    queue = TargetQueue()
    queue.resume(-1)
    queue.complete_fetching()
    for position in positions:
        queue.normal.append(part(position, size_bytes))
    return queue


def taken(queue: TargetQueue, entries: int = 100, size_bytes: int = MUCH) -> tuple[int, list[int]] | None:
    batch = queue.next_batch(entries, size_bytes)
    return None if batch is None else (batch.previous_position, [each.position for each in batch.parts])


def is_in(queue: TargetQueue, state: QueueState) -> bool:
    return queue.state is state


def test_bounds_of_what_waits() -> None:
    waiting = PartQueue()
    for count, full, over in ((1, False, False), (2, True, False), (3, True, True)):
        waiting.append(part(count))
        assert (waiting.is_full(Bound(2, MUCH)), waiting.exceeds(Bound(2, MUCH))) == (full, over)
        assert (waiting.is_full(Bound(9, 20)), waiting.exceeds(Bound(9, 20))) == (full, over)


def test_batches_end_at_either_bound_and_name_what_precedes_them() -> None:
    queue = normal(2, 5, 6, 9, 11)
    assert taken(queue, entries=2) == (-1, [2, 5])
    assert taken(queue, size_bytes=25) == (5, [6, 9])
    assert queue.has_waiting
    assert taken(queue) == (9, [11])
    assert not queue.has_waiting
    assert taken(queue) is None
    assert (queue.sent_position, queue.newest_position) == (11, 11)
    queue.catchup.append(part(12))
    assert queue.has_waiting


def test_when_all_is_sent_and_acknowledged() -> None:
    queue = normal(2)
    assert not queue.has_sent_all
    taken(queue)
    assert not queue.has_sent_all
    queue.erase(2)
    assert queue.has_sent_all
    queue.suspend()
    queue.resume(2)  # perhaps it has missed something
    assert not queue.has_sent_all


def test_one_entry_always_goes() -> None:
    queue = normal(2, 5, size_bytes=100)
    assert taken(queue, size_bytes=1) == (-1, [2])
    assert taken(queue, size_bytes=1) == (2, [5])


def test_what_is_sent_while_recovering() -> None:
    queue = TargetQueue()
    queue.resume(4)
    queue.normal.append(part(20))
    assert taken(queue) is None  # newer entries wait
    assert (queue.missed_position, queue.newest_position) == (4, 20)
    queue.catchup.append(part(7))
    assert taken(queue) == (4, [7])
    assert is_in(queue, QueueState.RECOVERY_FETCHING)
    queue.catchup.append(part(8))
    assert queue.missed_position == 8
    queue.complete_fetching()
    assert is_in(queue, QueueState.FETCHING_COMPLETED)
    assert taken(queue) == (7, [8, 20])
    assert is_in(queue, QueueState.NORMAL)


def test_the_catch_up_queue_is_emptied_before_a_batch_goes_on() -> None:
    queue = TargetQueue()
    queue.resume(4)
    for position in (5, 6, 7):
        queue.catchup.append(part(position))
    queue.normal.append(part(20, size_bytes=90))
    queue.complete_fetching()
    assert taken(queue, entries=2) == (4, [5, 6])
    assert queue.state is QueueState.FETCHING_COMPLETED
    assert taken(queue, size_bytes=50) == (6, [7])  # what follows is too large for this one
    assert taken(queue) == (7, [20])


def test_a_recovery_with_nothing_left_to_send_is_over_at_once() -> None:
    queue = TargetQueue()
    queue.resume(4)
    queue.complete_fetching()
    assert queue.state is QueueState.NORMAL


def test_dropping_what_waits_behind_a_recovery() -> None:
    queue = TargetQueue()
    queue.resume(4)
    queue.normal.append(part(20))
    queue.drop_normal()
    assert (len(queue.normal), queue.normal.size_bytes, queue.state) == (0, 0, QueueState.RECOVERY_FETCHING)
    queue.catchup.append(part(7))
    queue.complete_fetching()
    queue.drop_normal()
    assert queue.state is QueueState.RECOVERY_FETCHING
    assert taken(queue) == (4, [7])


def test_suspending_keeps_nothing() -> None:
    queue = normal(2, 5, 6)
    taken(queue, entries=1)
    queue.suspend()
    assert (len(queue.normal), len(queue.popped), queue.popped_entries, queue.popped_bytes) == (0, 0, 0, 0)
    assert taken(queue) is None
    queue.suspend()
    assert queue.state is QueueState.SUSPENDED
    queue.resume(3)
    queue.catchup.append(part(4))
    queue.suspend()
    assert (len(queue.catchup), queue.catchup.size_bytes) == (0, 0)


def test_an_illegal_change_is_a_bug() -> None:
    with pytest.raises(IllegalQueueTransition):
        TargetQueue().complete_fetching()


def test_an_acknowledgement_frees_all_at_or_below_it() -> None:
    queue = normal(2, 5, 6, 9, 11)
    taken(queue, entries=2)
    taken(queue)
    assert (queue.popped_entries, queue.popped_bytes) == (5, 50)
    for position, left in ((1, 5), (2, 4), (6, 2), (6, 2), (10, 1), (11, 0)):
        queue.erase(position)
        assert (queue.popped_entries, queue.popped_bytes) == (left, left * 10)
    assert not queue.popped


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class QueueMachine(RuleBasedStateMachine):
    """Against a list: what is pushed comes out once, in order, whatever happens in between."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TargetQueue()
        self.position = 0
        self.expected: list[int] = []
        self.unacknowledged: list[int] = []

    def _next(self) -> Part:
        self.position += 2
        return part(self.position, self.position % 7)

    @precondition(lambda self: self.queue.state is QueueState.SUSPENDED)
    @rule()
    def resume(self) -> None:
        self.queue.resume(self.position)

    @precondition(lambda self: self.queue.state is QueueState.RECOVERY_FETCHING and not self.queue.normal)
    @rule()
    def missed(self) -> None:
        self.expected.append(self.position + 2)
        self.queue.catchup.append(self._next())

    @precondition(lambda self: self.queue.state is not QueueState.SUSPENDED)
    @rule()
    def played(self) -> None:
        self.expected.append(self.position + 2)
        self.queue.normal.append(self._next())

    @precondition(lambda self: self.queue.state is QueueState.RECOVERY_FETCHING)
    @rule()
    def completed(self) -> None:
        self.queue.complete_fetching()

    @rule(entries=st.integers(1, 5), size_bytes=st.integers(1, 20))
    def take(self, entries: int, size_bytes: int) -> None:
        before = self.queue.sent_position
        batch = self.queue.next_batch(entries, size_bytes)
        if batch is None:
            held = self.queue.state is QueueState.RECOVERY_FETCHING and not self.queue.catchup
            assert held or not self.expected
            return
        positions = [each.position for each in batch.parts]
        assert batch.previous_position == before
        assert positions == self.expected[: len(positions)]
        assert len(positions) <= entries
        assert len(positions) == 1 or batch.size_bytes <= size_bytes
        del self.expected[: len(positions)]
        self.unacknowledged += positions

    @rule(back=st.integers(0, 10))
    def acknowledge(self, back: int) -> None:
        position = self.queue.sent_position - back
        self.queue.erase(position)
        self.unacknowledged = [each for each in self.unacknowledged if each > position]

    @rule()
    def suspend(self) -> None:
        self.queue.suspend()
        self.expected.clear()
        self.unacknowledged.clear()

    @invariant()
    def counts(self) -> None:
        queue = self.queue
        assert queue.popped_entries == len(self.unacknowledged)
        assert queue.popped_bytes == sum(position % 7 for position in self.unacknowledged)
        assert len(queue.catchup) + len(queue.normal) == len(self.expected)
        assert queue.state is not QueueState.FETCHING_COMPLETED or queue.catchup
        assert queue.state is not QueueState.NORMAL or not queue.catchup


TestQueue = QueueMachine.TestCase
