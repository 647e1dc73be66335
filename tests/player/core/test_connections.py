"""Streams to targets: tries, answers, terms, and where the main stream begins."""

from lockstep.player.core.player import Player
from lockstep.player.core.settings import NEVER_MS
from lockstep.player.core.target import LinkState
from lockstep.player.core.transitions import QueueState
from tests.player.core.players import (
    END,
    LOG_ID,
    START_MS,
    acknowledged,
    answer,
    away,
    closed,
    feed,
    fetched,
    greeted_again,
    player,
    playing,
    sent,
)
from tests.support.cases import each_case


def test_a_hello_has_the_terms_and_the_first_position_of_a_new_target() -> None:
    core = player()
    core.add("a", 40, START_MS)
    core.tick(START_MS)
    ((name, hello),) = core.ready().hellos
    assert (name, hello.log_id, hello.player_term, hello.target_term) == ("a", LOG_ID, 7, 1)
    assert hello.first_position == 40


def test_each_try_has_a_term_of_its_own() -> None:
    core = player("a")
    due_ms = core.deadline_ms
    assert due_ms == START_MS + core.settings.hello_timeout_ms
    core.tick(due_ms - 1)
    assert core.targets["a"].link is LinkState.HANDSHAKE
    core.tick(due_ms)  # unanswered
    words = "it was not connected within 3000 ms: it, or the log, did not respond"
    assert core.ready().closes == [("a", 1, words)]
    assert core.deadline_ms == due_ms + core.settings.backoff_ms
    greeted_again(core, "a")
    core.on_connected("a", 1, 5, 0, END, core.now_ms)  # the first one is answered after all
    assert core.targets["a"].link is LinkState.HANDSHAKE
    answer(core, "a", 8)
    assert (core.targets["a"].link, core.ready().start_position) == (LinkState.OPEN, 9)


def test_terms_survive_a_removal() -> None:
    core = playing("a", "b")
    core.remove("a", core.now_ms)
    assert closed(core.ready()) == [("a", 1)]
    core.add("a", 0, core.now_ms)
    core.tick(core.now_ms)
    ((_, hello),) = core.ready().hellos
    assert hello.target_term == 2
    core.on_acknowledged("a", 1, 3, core.now_ms)  # of the stream before
    assert core.targets["a"].last_ack == -1


def test_a_target_that_is_given_another_name() -> None:
    """At its address the terms of the old name are stored: what comes under the new one is above them."""
    core = playing("a")
    away(core, "a")
    greeted_again(core, "a")
    core.remove("a", core.now_ms)
    core.add("b", 0, core.now_ms)
    core.tick(core.now_ms)
    ((_, hello),) = core.ready().hellos
    assert hello.target_term == 3


def test_the_start_is_after_the_least_position_of_all() -> None:
    core = player("a", "b", "c")
    answer(core, "a", 30)
    answer(core, "b", 20)
    assert core.ready().start_position is None
    assert not core.has_room
    answer(core, "c", 25)
    assert core.ready().start_position == 21
    assert {target.queue.state for target in core.targets.values()} == {QueueState.NORMAL}
    feed(core, (22, 27, 31), "a b c")
    ready = core.ready()
    assert [sent(ready, name) for name in "abc"] == [[[31]], [[22, 27, 31]], [[27, 31]]]


def test_one_that_cannot_be_reached_holds_up_nobody() -> None:
    core = player("a", "b")
    answer(core, "a", 30)
    away(core, "b")
    core.tick(core.now_ms)
    assert core.ready().start_position == 31
    feed(core, (31,), "a b")
    assert core.targets["b"].queue.state is QueueState.SUSPENDED
    greeted_again(core, "b")
    answer(core, "b", 10)
    (fetch,) = core.ready().fetches
    assert (fetch.target, fetch.first_position, fetch.last_position) == ("b", 11, 31)


def test_one_that_does_not_answer_in_time_neither() -> None:
    core = player("a", "b", start_timeout_ms=2000)
    answer(core, "a", 30)
    assert core.deadline_ms == START_MS + 2000
    core.tick(START_MS + 1999)
    assert core.ready().start_position is None
    core.tick(START_MS + 2000)
    assert core.ready().start_position == 31


@each_case("goes", ["cannot go on", "is stopped", "is removed"])
def test_a_target_that_will_not_respond_is_not_waited_for(goes: str) -> None:
    core = player("a", "b")
    answer(core, "a", 30)
    assert core.ready().start_position is None
    if goes == "cannot go on":
        answer(core, "b", 100, end=50)
    elif goes == "is stopped":
        core.stop("b", "a rest", core.now_ms)
    else:
        core.remove("b", core.now_ms)
    assert core.ready().start_position == 31


def test_nobody_there_is_no_start() -> None:
    core = player("a", start_timeout_ms=100)
    away(core, "a")
    core.tick(START_MS + 1000)
    assert not core.started
    assert player().deadline_ms == NEVER_MS


def test_a_position_that_the_log_has_not_stops_the_target() -> None:
    core = player("a", "b", "c", "d")
    core.on_connected("a", 1, 18, 20, 50, core.now_ms)
    core.on_connected("b", 1, 50, 20, 50, core.now_ms)
    core.on_connected("c", 1, 19, 20, 50, core.now_ms)
    core.on_connected("d", 1, 49, 20, 50, core.now_ms)
    ready = core.ready()
    assert closed(ready) == [("a", 1), ("b", 1)]
    assert ready.stopped == [
        ("a", "it needs 19, the log begins at 20"),
        ("b", "it has stored 50, the log ends before 50"),
    ]
    assert ready.start_position == 20
    assert core.targets["a"].stopped_because == "it needs 19, the log begins at 20"
    core.tick(core.now_ms + 100_000)
    assert not {name for name, _ in core.ready().hellos} & {"a", "b"}


def test_a_stopped_target_is_retried_on_request() -> None:
    core = playing("a", "b")
    core.stop("a", "paused", core.now_ms)
    assert closed(core.ready()) == [("a", 1)]
    away(core, "a")  # what its stream still says
    assert core.targets["a"].link is LinkState.STOPPED
    core.resume("b", core.now_ms)  # which is not stopped
    core.resume("a", core.now_ms)
    core.tick(core.now_ms)
    assert [(name, hello.target_term) for name, hello in core.ready().hellos] == [("a", 2)]
    assert core.targets["a"].stopped_because == ""


def test_a_silent_target_is_given_up() -> None:
    core = playing("a", heartbeat_ms=100, silent_heartbeats=3)
    feed(core, (0,))
    core.ready()
    beats = 0
    while core.targets["a"].link is LinkState.OPEN:
        core.tick(core.deadline_ms)
        ready = core.ready()
        beats += len(ready.heartbeats)
    assert beats == 3  # the first finds the handshake
    assert ready.closes == [("a", 1, "it sent nothing for 3 heartbeats of 100 ms")]
    assert core.targets["a"].queue.state is QueueState.SUSPENDED
    assert core.targets["a"].health.timed_out_streams == 1


def test_one_that_is_silent_and_owes_nothing_hangs_in_nothing() -> None:
    core = playing("a", heartbeat_ms=100, silent_heartbeats=3)
    while core.targets["a"].link is LinkState.OPEN:
        core.tick(core.deadline_ms)
    assert core.targets["a"].health.timed_out_streams == 0


def silent_after(core: Player) -> int:
    """So many heartbeats."""
    beats = 0
    while core.targets["a"].link is LinkState.OPEN:
        core.tick(core.deadline_ms)
        beats += len(core.ready().heartbeats)
    return beats


def test_a_batch_that_is_long_on_its_way_is_given_more_time() -> None:
    """A heartbeat is behind it: with the same patience each time it would come again and again."""
    core = playing("a", heartbeat_ms=100, silent_heartbeats=3)
    feed(core, (0,))
    waits = [silent_after(core)]
    for _ in range(2):
        greeted_again(core, "a")
        answer(core, "a", -1)
        fetched(core, (0,), 0)
        assert sent(core.ready()) == [[0]]
        waits.append(silent_after(core))
    assert waits == [3, 6, 12]
    assert core.targets["a"].health.timed_out_streams == 3
    greeted_again(core, "a")
    answer(core, "a", 0)  # it came after all, and nobody was there to be told
    core.tick(core.deadline_ms)
    assert core.targets["a"].health.timed_out_streams == 0


def test_a_target_that_hangs_is_given_up() -> None:
    core = playing("a", heartbeat_ms=100, stuck_heartbeats=4)
    feed(core, (0,))
    for _ in range(4):
        core.tick(core.deadline_ms)
        acknowledged(core, -1)  # it lives
    assert core.targets["a"].link is LinkState.OPEN
    core.ready()
    core.tick(core.deadline_ms)
    assert (core.targets["a"].link, core.targets["a"].health.timed_out_streams) == (LinkState.DISCONNECTED, 1)
    words = "it responds, and acknowledged no further entry for 4 heartbeats of 100 ms"
    assert core.ready().closes == [("a", 1, words)]


def test_a_stream_that_broke_is_not_closed() -> None:
    core = playing("a")
    away(core, "a")
    assert core.ready().closes == []
    assert core.deadline_ms > core.now_ms


@each_case("started", [False, True])
def test_a_target_lost_before_the_start_may_come_back(started: bool) -> None:
    core = player("a", "b")
    answer(core, "a", 30)
    away(core, "a")
    greeted_again(core, "a")
    if started:
        answer(core, "b", 40)
        assert core.ready().start_position == 41  # `a` has failed once: it is not waited for
    answer(core, "a", 35)
    assert (core.targets["a"].link is LinkState.OPEN) == started
