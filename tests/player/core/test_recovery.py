"""How a target gets what it has missed: both sides of the end, its extension, its last dummy."""

import pytest

from lockstep.player.core.messages import Entry
from lockstep.player.core.recovery import missed_range
from lockstep.player.core.router import Parts
from lockstep.player.core.settings import Bound
from lockstep.player.core.transitions import QueueState
from tests.player.core.players import (
    acknowledged,
    answer,
    closed,
    entries,
    feed,
    fetched,
    greeted_again,
    recovering,
    sent,
    waiting,
    written,
)

N, RF, FC = QueueState.NORMAL, QueueState.RECOVERY_FETCHING, QueueState.FETCHING_COMPLETED


def test_what_is_missed() -> None:
    assert missed_range(4, 9) == (5, 9)
    first, last = missed_range(9, 9)
    assert first > last


def test_from_what_it_has_to_where_the_main_stream_stands() -> None:
    core = recovering(4, 9)
    target = core.targets["a"]
    (fetch,) = core.ready().fetches
    assert (fetch.target, fetch.target_term) == ("a", 2)
    assert (fetch.first_position, fetch.last_position) == (5, 9)
    assert fetch.max_bytes == core.settings.batch.size_bytes
    assert target.queue.state is RF
    feed(core, (10, 12))
    assert sent(core.ready()) == []  # they wait behind what it has missed
    fetched(core, (5, 7), 7)
    ready = core.ready()
    assert sent(ready) == [[5, 7]]
    assert [(each.first_position, each.last_position) for each in ready.fetches] == [(8, 9)]
    fetched(core, (9,), 9)
    assert (waiting(target), target.queue.state) == (([9], [10, 12]), FC)
    written(core)
    assert sent(core.ready()) == [[9, 10, 12]]
    assert target.queue.state is N


def test_nothing_missed_is_normal_at_once() -> None:
    for at in (9, 15):
        core = recovering(4, 9)
        core.on_disconnected("a", 2, core.now_ms)
        greeted_again(core, "a")
        core.ready()
        answer(core, "a", at)
        assert core.ready().fetches == []
        assert core.targets["a"].queue.state is N
        feed(core, (14, 16))
        assert sent(core.ready()) == [[14, 16] if at == 9 else [16]]


def test_a_recovery_ends_with_a_dummy() -> None:
    core = recovering(4, 9)
    fetched(core, (5, 7), 20)
    (name, _, batch) = core.ready().batches[0]
    assert name == "a"
    assert [(part.position, part.is_dummy) for part in batch.parts] == [(5, False), (7, False), (9, True)]
    assert core.targets["a"].queue.state is N


def test_but_not_where_an_entry_does_its_work() -> None:
    core = recovering(4, 9)
    fetched(core, (5, 9), 9)
    assert sent(core.ready()) == [[5, 9]]


def test_what_waited_is_sent_at_once_where_all_was_sent_by_then() -> None:
    core = recovering(4, 9)
    fetched(core, (5, 9), 8)  # a source that says less than it has: nothing is taken twice
    written(core)
    feed(core, (10,))
    core.ready()
    fetched(core, (9,), 9)
    assert sent(core.ready()) == [[9, 10]]


def test_only_the_requested_range_is_taken() -> None:
    core = recovering(4, 9)
    core.ready()
    core.on_fetched("a", 2, [*entries((3, 4, 5), "b"), *entries((6, 7, 9, 10, 11), "a b")], 11, core.now_ms)
    assert sent(core.ready()) == [[6, 7, 9]]


def test_one_fetch_at_a_time_and_one_answer_for_each() -> None:
    core = recovering(4, 9)
    core.ready()
    feed(core, (10,))
    acknowledged(core, 4)
    assert core.ready().fetches == []
    fetched(core, (5,), 6)
    assert len(core.ready().fetches) == 1
    core.on_fetch_failed("a", 2, core.now_ms)
    fetched(core, (7,), 9)  # the one that failed
    assert core.targets["a"].fetched_position == 6


def test_a_fetch_that_found_nothing_comes_again_with_a_heartbeat() -> None:
    core = recovering(4, 9)
    core.ready()
    for is_told in (True, False):
        if is_told:
            core.on_fetch_failed("a", 2, core.now_ms)
        else:
            fetched(core, (), 4)
        assert core.ready().fetches == []
        core.tick(core.targets["a"].health.next_event_ms)
        assert [each.first_position for each in core.ready().fetches] == [5]


def test_the_fetcher_waits_where_too_much_waits() -> None:
    core = recovering(4, 30, window=Bound(3, 1000), catchup=Bound(2, 1000))
    core.ready()
    fetched(core, (5, 6, 7, 8, 9), 9)
    assert sent(core.ready()) == [[5, 6, 7]]
    assert waiting(core.targets["a"])[0] == [8, 9]
    written(core)
    assert core.ready().fetches == []  # the window is full, and so is what waits
    acknowledged(core, 6)
    ready = core.ready()
    assert sent(ready) == [[8, 9]]
    assert [(each.first_position, each.last_position) for each in ready.fetches] == [(10, 30)]


def test_too_much_behind_a_recovery_is_read_again_later() -> None:
    core = recovering(4, 9)
    target = core.targets["a"]
    core.ready()
    feed(core, range(10, 16))  # the bound is 5
    assert (waiting(target), target.dropped, target.overflows) == (([], []), True, 1)
    feed(core, (16, 17))
    assert waiting(target) == ([], [])
    fetched(core, (5,), 9)
    ready = core.ready()
    assert (target.end_position, target.dropped, target.queue.state) == (17, False, RF)
    assert [(each.first_position, each.last_position) for each in ready.fetches] == [(10, 17)]
    feed(core, (18,))
    fetched(core, range(10, 18), 17)
    assert (waiting(target), target.queue.state) == (([*range(10, 18)], [18]), FC)


def test_and_so_it_is_where_all_was_read_and_not_sent() -> None:
    core = recovering(4, 9, window=Bound(1, 1000))
    target = core.targets["a"]
    fetched(core, (5, 7, 9), 9)
    assert target.queue.state is FC
    core.ready()
    feed(core, range(10, 16))
    assert (waiting(target), target.queue.state) == (([7, 9], []), RF)
    (fetch,) = core.ready().fetches
    assert (fetch.first_position, fetch.last_position) == (10, 15)
    acknowledged(core, 5)
    written(core)
    assert sent(core.ready()) == [[7]]


def test_it_is_read_when_there_is_room_for_it() -> None:
    core = recovering(4, 9, window=Bound(1, 1000), catchup=Bound(2, 1000))
    fetched(core, (5, 7, 9), 9)
    core.ready()
    feed(core, range(10, 16))
    assert core.ready().fetches == []
    acknowledged(core, 5)
    written(core)
    assert [each.first_position for each in core.ready().fetches] == [10]


def test_a_router_that_fails_changes_nothing() -> None:
    core = recovering(4, 9)
    core.ready()
    target = core.targets["a"]
    real = core.route

    def route(entry: Entry) -> Parts:
        if entry.position == 6:
            raise LookupError("no such table")
        return real(entry)

    core.route = route
    with pytest.raises(LookupError):
        fetched(core, (5, 6), 9)
    assert (waiting(target), target.fetched_position, target.fetching) == (([], []), 4, True)


def test_a_range_deleted_by_retention_is_checked() -> None:
    core = recovering(4, 9)
    core.ready()
    core.on_range_lost("a", 2, core.now_ms)
    assert closed(core.ready()) == [("a", 2)]
    greeted_again(core, "a")
    answer(core, "a", 4, first=7)
    assert core.ready().stopped == [("a", "it needs 5, the log begins at 7")]
