"""The main stream to its targets: parts, bounds, dummies, windows, acknowledgements."""

import pytest

from lockstep.player.core.messages import Entry
from lockstep.player.core.router import Parts
from lockstep.player.core.settings import Bound
from lockstep.player.core.target import LinkState
from lockstep.player.core.transitions import QueueState
from tests.player.core.players import (
    acknowledged,
    answer,
    away,
    closed,
    entries,
    feed,
    greeted_again,
    playing,
    recovering,
    sent,
    waiting,
    written,
)
from tests.support.cases import each_case


def test_each_target_gets_its_parts() -> None:
    core = playing("a", "b")
    core.feed([*entries((0,), "a b"), *entries((1,), "b"), *entries((2,), "")], 4, core.now_ms)
    ready = core.ready()
    assert (sent(ready, "a"), sent(ready, "b")) == ([[0]], [[0, 1]])
    assert [part.payload for _, _, batch in ready.batches for part in batch.parts] == ["a@0", "b@0", "b@1"]
    assert core.current_position == 4
    core.feed([*entries((4,), "a")], 4, core.now_ms)  # nothing new
    core.feed(entries((4, 5, 7)), 6, core.now_ms)  # too early, too far
    written(core)
    assert sent(core.ready()) == [[5]]
    assert core.current_position == 6


def test_parts_for_nobody_are_counted() -> None:
    core = playing("a")
    feed(core, (0,), "a nobody")
    assert (core.unrouted, core.ready().unrouted) == (1, "nobody")
    feed(core, (1,), "a nobody-else")
    assert (core.unrouted, core.ready().unrouted) == (2, None)


def test_a_router_that_fails_changes_nothing() -> None:
    core = playing("a")

    def route(entry: Entry) -> Parts:
        raise LookupError("no such table")

    core.route = route
    with pytest.raises(LookupError):
        feed(core, (0, 1))
    assert core.current_position == -1


def test_one_write_at_a_time() -> None:
    core = playing("a", batch=Bound(2, 1000))
    feed(core, range(5))
    assert sent(core.ready()) == [[0, 1]]
    feed(core, (5,))
    acknowledged(core, 1)  # before its write completes: it frees all the same
    assert core.targets["a"].queue.popped_entries == 0
    assert sent(core.ready()) == []
    written(core)
    assert sent(core.ready()) == [[2, 3]]


@each_case("window", [Bound(4, 1000), Bound(100, 35)])
def test_the_window_bounds_what_is_not_acknowledged(window: Bound) -> None:
    core = playing("a", window=window)
    feed(core, range(5))
    assert sent(core.ready()) == [[0, 1, 2]]
    written(core)
    assert sent(core.ready()) == [[3]]  # by its entries; by its bytes, since one always goes
    written(core)
    assert sent(core.ready()) == []
    acknowledged(core, 2)
    assert sent(core.ready()) == [[4]]


def test_acknowledgements_only_go_forward() -> None:
    core = playing("a")
    feed(core, range(3))
    acknowledged(core, 1)
    acknowledged(core, 0)
    assert core.targets["a"].last_ack == 1


def test_what_was_not_sent_cannot_be_acknowledged() -> None:
    core = playing("a", batch=Bound(2, 1000))
    feed(core, range(3))
    acknowledged(core, 2)
    assert core.ready().stopped == [("a", "it acknowledged 2, it was sent up to 1")]
    assert core.targets["a"].link is LinkState.STOPPED


def test_a_target_that_leaves_too_much_waiting_recovers() -> None:
    core = playing("a", "b")
    feed(core, range(8), "a")  # three are sent, five wait
    assert core.targets["a"].queue.state is QueueState.NORMAL
    feed(core, (8,), "a b")
    target = core.targets["a"]
    ready = core.ready()
    words = "more than 5 entries or 1000 bytes were queued for it"
    assert (ready.closes, target.queue.state, target.overflows) == (
        [("a", 1, words)],
        QueueState.SUSPENDED,
        1,
    )
    assert sent(ready, "b") == [[8]]
    greeted_again(core, "a")
    answer(core, "a", 1)
    (fetch,) = core.ready().fetches
    assert (fetch.first_position, fetch.last_position) == (2, 8)


def test_where_too_much_waits_behind_a_recovery_the_stream_stays() -> None:
    core = recovering(4, 9)
    feed(core, range(10, 16))
    target = core.targets["a"]
    assert (target.overflows, target.dropped, waiting(target)) == (1, True, ([], []))
    assert core.ready().closes == []


def test_a_stream_that_is_closed_gets_nothing_more_in_that_step() -> None:
    core = playing("a", "b")
    feed(core, range(9), "a b")  # a batch for each, and then too much waits for each
    ready = core.ready()
    assert closed(ready) == [("a", 1), ("b", 1)]
    assert ready.batches == []


def test_overflows_are_forgotten_once_all_is_acknowledged() -> None:
    core = playing("a")
    target = core.targets["a"]
    target.overflows = 2
    feed(core, range(4))
    written(core)
    acknowledged(core, 2)
    assert target.overflows == 2
    acknowledged(core, 3)
    assert target.overflows == 0
    core = recovering(4, 9)
    core.targets["a"].overflows = 1
    core.on_fetched("a", 2, entries((5,)), 6, core.now_ms)
    acknowledged(core, 5)
    assert core.targets["a"].overflows == 1  # it is not there yet


def test_dummies_for_those_that_got_nothing_for_long() -> None:
    core = playing("a", "b", dummy_every=4)
    feed(core, range(3), "b")
    assert core.ready().batches[0][0] == "b"
    feed(core, (3, 4), "b")
    (batch,) = [batch for name, _, batch in core.ready().batches if name == "a"]
    assert [(part.position, part.is_dummy) for part in batch.parts] == [(4, True)]
    assert waiting(core.targets["b"]) == ([], [3, 4])  # it has unsent entries, the last of them at 4


def test_a_dummy_goes_behind_what_waits() -> None:
    core = playing("a", "b", dummy_every=4)
    feed(core, (0, 1, 2, 3), "a")
    core.ready()
    feed(core, (4, 5, 6, 7), "b")
    written(core)
    assert sent(core.ready()) == [[3, 7]]


def test_no_dummies_for_targets_that_are_near_disconnected_or_far_behind() -> None:
    core = playing("a", "b", "c", dummy_every=4)
    away(core, "b")
    core.feed([], 8, core.now_ms)
    greeted_again(core, "b")
    answer(core, "b", 2)
    core.targets["b"].dropped = True
    away(core, "c")
    core.targets["a"].last_ack = core.targets["a"].queue.sent_position = 11
    feed(core, range(11, 15), "")
    assert [waiting(target) for target in core.targets.values()] == [([], [])] * 3
    feed(core, range(15, 19), "")
    assert sent(core.ready(), "a") == [[18]]


def test_a_dummy_where_the_main_stream_has_gone_quiet() -> None:
    """Behind the last entry there is often a marker: without this a target's mark would stay below it for
    ever, and seem to lack something once retention has deleted all."""
    core = playing("a", "b", dummy_every=4, quiet_ms=2000)
    feed(core, (0,), "a")
    core.feed([], 1, core.now_ms)
    assert sent(core.ready()) == [[0]]
    written(core)
    acknowledged(core, 0)
    began_ms = core.now_ms
    sent_to: dict[str, list[list[int]]] = {"a": [], "b": []}
    while core.now_ms < began_ms + 5000:
        core.tick(core.deadline_ms)
        ready = core.ready()
        for name in "ab":
            sent_to[name] += sent(ready, name)
            if sent(ready, name):
                assert core.now_ms >= began_ms + 2000
                written(core, name)
            acknowledged(core, core.targets[name].queue.sent_position, name)
    assert sent_to == {"a": [[1]], "b": [[1]]}  # once


def test_a_target_without_entries_gets_the_position_of_the_main_stream() -> None:
    """Else retention would delete what is not for it, and it would seem to lack that."""
    core = playing("a", "b", dummy_every=1000, quiet_ms=10_000)
    for position in range(500):
        feed(core, (position,))
        for name in "ab":
            if sent(core.ready(), name) or core.targets[name].writing:
                written(core, name)
            acknowledged(core, core.targets[name].queue.sent_position, name)
        until_ms = core.now_ms + 9_000
        while core.now_ms < until_ms:
            core.tick(min(core.deadline_ms, until_ms))
            for name in "ab":
                if core.targets[name].writing:
                    written(core, name)
                acknowledged(core, core.targets[name].queue.sent_position, name)
            core.ready()
    assert core.targets["b"].last_ack >= 497


def test_targets_without_entries_get_dummies_at_an_interval() -> None:
    core = playing("a", "b", dummy_every=4, normal=Bound(100, 10_000))
    for looks in range(1, 4):
        feed(core, range(4 * looks - 4, 4 * looks))
        assert sent(core.ready(), "b") == [[4 * looks - 1]]
        written(core, "b")
        acknowledged(core, 4 * looks - 1, "b")


def test_a_dummy_for_the_quiet_does_not_come_on_top_of_what_waits() -> None:
    """The acknowledgement came before the write's completion, so nothing is under way; the queue is full."""
    core = playing("a", dummy_every=4, quiet_ms=2000, normal=Bound(2, 1000))
    feed(core, (0,))
    assert sent(core.ready()) == [[0]]
    acknowledged(core, 0)
    feed(core, (1, 2))
    core.feed([], 3, core.now_ms)
    core.targets["a"].health.received = True
    began_ms = core.now_ms
    while core.now_ms < began_ms + 4000:
        core.tick(core.deadline_ms)
        acknowledged(core, 0)
        assert waiting(core.targets["a"]) == ([], [1, 2])
    written(core)
    assert sent(core.ready())[-1] == [1, 2]


@each_case("never", [{"dummy_every": 0, "quiet_ms": 1}, {"dummy_every": 4, "quiet_ms": 0}])
def test_no_dummies_where_it_has_gone_quiet(never: dict[str, int]) -> None:
    core = playing("a", **never)
    core.feed([], 1, core.now_ms)
    for _ in range(5):
        core.tick(core.deadline_ms)
        assert core.ready().batches == []
        acknowledged(core, -1)


def test_no_dummies_at_all() -> None:
    core = playing("a", dummy_every=0)
    feed(core, range(100), "")
    assert core.ready().batches == []
