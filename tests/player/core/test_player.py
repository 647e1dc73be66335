"""The one object: what is stale is dropped, what a newer player means, and when it is to be asked again."""

from collections.abc import Callable

import pytest

from lockstep.player.core.player import Player
from lockstep.player.core.settings import NEVER_MS, Bound
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
    player,
    playing,
    recovering,
    sent,
    waiting,
)
from tests.support.cases import each_case

STALE: dict[str, Callable[[Player, str, int], None]] = {
    "connected": lambda core, name, term: core.on_connected(name, term, 5, 0, 100, core.now_ms),
    "disconnected": lambda core, name, term: core.on_disconnected(name, term, core.now_ms),
    "refused": lambda core, name, term: core.on_stale(name, term, 99, core.now_ms),
    "written": lambda core, name, term: core.on_written(name, term, core.now_ms),
    "acknowledged": lambda core, name, term: core.on_acknowledged(name, term, 5, core.now_ms),
    "fetched": lambda core, name, term: core.on_fetched(name, term, entries((5,)), 9, core.now_ms),
    "fetch_failed": lambda core, name, term: core.on_fetch_failed(name, term, core.now_ms),
    "range_lost": lambda core, name, term: core.on_range_lost(name, term, core.now_ms),
}


@each_case(("name", "term"), [("a", 1), ("a", 3), ("nobody", 2)])
@each_case("say", STALE.values(), ids=list(STALE))
def test_what_is_not_of_the_current_stream_is_dropped(
    say: Callable[[Player, str, int], None], name: str, term: int
) -> None:
    core = recovering(4, 9)
    core.ready()
    target = core.targets["a"]
    say(core, name, term)
    assert (target.link, target.last_ack, target.fetching, target.queue.state) == (
        LinkState.OPEN,
        4,
        True,
        QueueState.RECOVERY_FETCHING,
    )
    ready = core.ready()
    assert not (ready.batches or ready.closes or ready.stopped or ready.deposed)


@each_case("say", STALE.values(), ids=list(STALE))
def test_what_comes_after_a_stream_was_given_up_is_dropped(say: Callable[[Player, str, int], None]) -> None:
    core = recovering(4, 9)
    core.stop("a", "paused", core.now_ms)
    core.ready()
    say(core, "a", 2)
    assert core.targets["a"].link is LinkState.STOPPED
    assert not core.ready().deposed


@each_case("what", ["written", "acknowledged", "fetched", "fetch_failed", "range_lost"])
def test_what_comes_before_the_answer_is_dropped(what: str) -> None:
    core = player("a", "b")
    STALE[what](core, "a", 1)
    assert (core.targets["a"].link, core.targets["a"].last_ack) == (LinkState.HANDSHAKE, -1)


def test_an_answer_counts_once() -> None:
    core = playing("a", at=3)
    answer(core, "a", 1)
    assert core.targets["a"].last_ack == 3


def test_a_newer_player_ends_this_one() -> None:
    core = playing("a", "b")
    feed(core, range(3), "a b")
    core.on_stale("a", 1, 8, core.now_ms)
    ready = core.ready()
    assert ready.deposed
    assert closed(ready) == [("a", 1), ("b", 1)]
    assert not core.has_room
    assert core.deadline_ms == NEVER_MS
    core.tick(core.now_ms + 10_000)
    feed(core, (3,), "a b")
    core.feed_lost(50, core.now_ms)
    acknowledged(core, 1, "b")
    ready = core.ready()
    assert not (ready.batches or ready.hellos or ready.closes or ready.deposed)
    assert core.current_position == 2


def test_another_player_of_the_same_term_is_an_error() -> None:
    core = playing("a", "b")
    core.on_stale("a", 1, 7, core.now_ms)
    ready = core.ready()
    words = "another player has term 7, too, or another target has the same store"
    assert ready.stopped == [("a", words)]
    assert not ready.deposed


def test_the_log_lost_what_comes_next() -> None:
    core = playing("a", "b", "c", at=4)
    core.targets["b"].last_ack = 20
    away(core, "c")
    core.feed_lost(5, core.now_ms)  # nothing is missing
    assert core.targets["a"].link is LinkState.OPEN
    core.feed_lost(10, core.now_ms)
    assert core.current_position == 9
    words = "its next entries are deleted, the log begins at 10"
    assert core.ready().closes == [("a", 1, words)]
    assert core.targets["b"].link is LinkState.OPEN
    greeted_again(core, "a")
    answer(core, "a", 8, first=10)
    assert core.ready().stopped == [("a", "it needs 9, the log begins at 10")]
    unstarted = player("a")
    unstarted.feed_lost(10, unstarted.now_ms)
    feed(unstarted, (10,))
    assert unstarted.current_position == -1


def test_the_main_stream_waits_for_the_first_that_has_room() -> None:
    core = playing("a", "b", normal=Bound(4, 1000), window=Bound(1, 1000))
    assert core.has_room
    feed(core, range(4), "a")  # three wait
    assert core.has_room  # for b
    feed(core, range(4, 8), "b")
    assert not core.has_room
    acknowledged(core, 0)
    core.on_written("a", 1, core.now_ms)
    assert core.has_room
    away(core, "a")
    assert not core.has_room
    away(core, "b")
    assert core.has_room  # nobody follows: their recoveries have to end somewhere


def test_the_main_stream_waits_for_bytes_as_well() -> None:
    core = playing("a", normal=Bound(100, 50), window=Bound(1, 1000))
    feed(core, range(3))
    assert core.has_room
    feed(core, (3,))
    assert not core.has_room


def test_a_target_added_during_delivery_begins_at_the_given_position() -> None:
    core = playing("a", at=4)
    feed(core, range(5, 8), "a b")
    core.ready()
    core.add("b", 6, core.now_ms)
    assert core.deadline_ms == core.now_ms
    core.tick(core.now_ms)
    ((name, hello),) = core.ready().hellos
    assert (name, hello.first_position) == ("b", 6)
    answer(core, "b", 5)
    (fetch,) = core.ready().fetches
    assert (fetch.target, fetch.first_position, fetch.last_position) == ("b", 6, 7)
    with pytest.raises(ValueError, match="there is a target 'b'"):
        core.add("b", 0, core.now_ms)


def test_a_removed_target_gets_nothing_more() -> None:
    core = playing("a", "b")
    core.remove("a", core.now_ms)
    feed(core, (0,), "a b")
    assert sent(core.ready()) == []
    for call in (core.remove, core.resume):
        with pytest.raises(KeyError):
            call("a", core.now_ms)


def test_a_name_that_comes_back_may_be_where_another_target_was() -> None:
    """Whose terms are stored there: a lower one would be refused, again and again."""
    core = playing("a", "b")
    core.terms["b"] = 50
    core.remove("a", core.now_ms)
    core.remove("b", core.now_ms)
    core.add("a", 0, core.now_ms)
    assert core.terms["a"] == 50


def test_time_does_not_go_back() -> None:
    core = playing("a")
    core.tick(5000)
    core.tick(3000)
    assert core.now_ms == 5000


def test_each_thing_is_handed_out_once() -> None:
    core = playing("a")
    feed(core, (0,))
    assert sent(core.ready()) == [[0]]
    assert sent(core.ready()) == []
    assert waiting(core.targets["a"]) == ([], [])


def test_answers_to_fetches() -> None:
    core = recovering(4, 9)
    core.ready()
    core.on_fetched("a", 2, [], 4, core.now_ms)  # nothing: not asked again at once
    assert core.ready().fetches == []
    core.on_fetched("a", 2, entries((5,)), 9, core.now_ms)  # not asked for
    assert sent(core.ready()) == []
    core.tick(core.targets["a"].health.next_event_ms)
    core.on_fetch_failed("a", 2, core.now_ms)
    core.tick(core.targets["a"].health.next_event_ms)
    assert len(core.ready().fetches) == 2
    core.on_fetched("a", 2, entries((5,)), 7, core.now_ms)
    assert sent(core.ready()) == [[5]]
    core.on_range_lost("a", 2, core.now_ms)
    assert core.ready().closes == [("a", 2, "the entries it has missed are deleted from the log")]


def test_a_stopped_target_waits_to_be_resumed() -> None:
    core = playing("a", "b")
    core.stop("a", "paused", core.now_ms)
    assert core.ready().stopped == [("a", "paused")]
    core.resume("b", core.now_ms)
    assert core.targets["b"].link is LinkState.OPEN
    core.resume("a", core.now_ms)
    assert (core.targets["a"].link, core.targets["a"].stopped_because) == (LinkState.DISCONNECTED, "")
    assert core.deadline_ms == core.now_ms


def test_before_the_start_the_time_of_that_is_due_where_somebody_waits() -> None:
    core = player("a", "b", start_timeout_ms=50)
    assert core.deadline_ms > core.start_due_ms
    answer(core, "a", 4)
    assert core.deadline_ms == core.start_due_ms
