"""What a shell must do, over a log, streams and targets in memory."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.player.core.messages import Entry, Part
from lockstep.player.core.router import Router
from lockstep.player.core.settings import Bound
from lockstep.player.driver.driver import PlayerDriver
from lockstep.player.driver.errors import Deposed, PlayerStopped
from lockstep.player.driver.target_record import TargetEndpoint, TargetRecord
from lockstep.player.source.interface import LogChunk
from lockstep.player.target.target_position import Mark
from tests.player.driver.doubles import (
    LOG_ID,
    MemoryLog,
    MemoryStream,
    MemoryStreams,
    expected,
    has_all,
    playing,
    route,
    settings,
    until,
)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "from within"])
async def test_each_target_gets_its_own_once_and_in_order(log: MemoryLog, at_once: bool) -> None:
    streams = MemoryStreams("a", "b", at_once=at_once)
    log.append("a", "b", "a b", "")
    async with playing(log, streams) as play:
        await until(lambda: has_all(log, streams))
        for _ in range(30):
            log.append("a b", "b")
            log.skip(2)
            await asyncio.sleep(0)
        await until(lambda: has_all(log, streams))
        await until(lambda: play.status().current_position == log.next_position - 1)
        assert not play.core.unrouted
    assert not streams["a"].refusals and all(stream.is_closed for stream in streams.opened)


async def test_the_loop_does_not_turn_between_a_read_and_what_is_written() -> None:
    turned = asyncio.Event()
    written_before_a_turn: list[bool] = []

    class Log(MemoryLog):
        async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
            chunk = await super().read(first_position, max_bytes, wait_s)
            turned.clear()
            asyncio.get_running_loop().call_soon(turned.set)
            return chunk

    log, streams = Log(), MemoryStreams("a", "b")
    async with playing(log, streams):
        await until(lambda: len(streams.opened) == 2 and bool(log.reads))
        for stream in streams.opened:
            write = stream.write

            def noted(batch: object, write: object = write) -> None:
                written_before_a_turn.append(not turned.is_set())
                write(batch)  # type: ignore[operator]

            stream.write = noted  # type: ignore[method-assign]
        for count in range(1, 6):
            log.append("a b")
            await until(lambda count=count: len(streams["b"].applied) == count)  # type: ignore[misc]
    assert written_before_a_turn == [True] * 10


async def test_a_target_that_answers_a_hello_again_and_again(log: MemoryLog) -> None:
    """Each answer would have the log's bounds read: so many reads, and tasks, as a target likes."""
    streams = MemoryStreams("a")
    log.append("a")
    async with playing(log, streams) as play:
        await until(lambda: has_all(log, streams))
        asked = log.asked_bounds
        stream = play._targets["a"].stream
        assert stream is not None
        for _ in range(1000):
            stream.on_greeted(0)
        log.append("a")
        await until(lambda: has_all(log, streams))
        assert log.asked_bounds == asked


async def test_bounds_are_requested_after_the_handshake(log: MemoryLog) -> None:
    streams = MemoryStreams("a")
    streams["a"].hangs = True
    async with playing(log, streams):
        await asyncio.sleep(0.05)
        assert streams.opened and log.asked_bounds == len(streams.opened), "where a new target may begin"
        streams["a"].hangs = False
        await until(lambda: log.asked_bounds > len(streams.opened))


@pytest.mark.parametrize(("log_group", "name"), [(None, "topic-0"), (3, "topic in log group 3")])
async def test_a_target_that_is_down_fills_no_log(
    log: MemoryLog, log_group: int | None, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lockstep.player")
    log.log_group = log_group
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        log.append("a")
        await until(lambda: has_all(log, streams))
        streams["a"].crash()
        tries = len(streams.opened)
        await until(lambda: len(streams.opened) > tries + 3)
        (said,) = [text for text in caplog.messages if "connection refused" in text]
        assert said.startswith(f"{name}: the stream to target a ended: ")
        streams["a"].restart()
        await until(lambda: play.status().targets[0].link == "open")
    assert caplog.messages[-1] == f"{name}: target a is connected again, at 0"


async def test_a_target_that_takes_each_stream_and_ends_it_is_warned_of_once_a_minute(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    known = TargetRecord("a:1", False)
    reason = "ValueError: planted"
    due = [known.is_warning_due(reason, now_s) for now_s in (5.0, 6.0, 64.9, 65.0, 66.0)]
    assert due == [True, False, False, True, False]
    assert known.is_warning_due("another reason", 66.5)
    caplog.set_level("INFO", logger="lockstep.player")
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        for _ in range(3):
            log.append("a")
            await until(lambda: has_all(log, streams))
            streams["a"].crash()
            streams["a"].restart()
            await until(lambda: play.status().targets[0].link == "open")
    levels = [each.levelname for each in caplog.records if "the stream to target a ended: " in each.message]
    assert levels and set(levels) == {"WARNING"} and len(levels) < 3


async def test_the_reason_of_an_aborted_target_is_reported_until_it_progresses(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lockstep.player")
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        streams["a"].crash()
        await until(lambda: play.status().targets[0].closed_because == "connection refused")
        streams["a"].restart()
        log.append("a")
        await until(lambda: has_all(log, streams))
        await until(lambda: not play.status().targets[0].closed_because)
        streams["a"].hangs = True
        log.append("a")
        await until(lambda: play.status().targets[0].hung > 0)
        target = play.status().targets[0]
        assert target.closed_because not in ("", "connection refused", "crashed")
        words = "it sent nothing for 8 heartbeats of 25 ms"
        assert f"topic-0: the stream to target a is closed: {words}" in caplog.messages
        streams["a"].hangs = False
        await until(lambda: has_all(log, streams))
        await until(lambda: play.status().targets[0].closed_because == "")
        assert play.status().targets[0].hung == 0
        play.stop("a", "a rest")
        play.resume("a")
        assert play.status().targets[0].closed_because == "", "nothing broke"


async def test_a_target_crashes_and_comes_back(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    async with playing(log, streams) as play:
        log.append(*["a b"] * 25)
        await until(lambda: has_all(log, streams))
        streams["a"].crash()
        log.append(*["a b", "b"] * 60)
        await until(lambda: has_all(log, streams, "b"))
        assert len(streams["a"].applied) == 25
        (status, _) = play.status().targets
        assert status.state == "S" and status.closed_because in ("crashed", "connection refused")
        streams["a"].restart()
        await until(lambda: has_all(log, streams))
        log.append("a")
        await until(lambda: has_all(log, streams))
        counters = play.target_counters("a")
        assert counters.recoveries == 1 and counters.fetches >= 2 and counters.streams >= 2
        assert play.target_counters("b").recoveries == 0
        assert play.status().targets[0].recovery_end_position is None


async def test_a_slow_target_delays_nobody_and_waits_in_bounded_memory(log: MemoryLog) -> None:
    streams = MemoryStreams("slow", "quick")
    streams["slow"].apply_s = 0.02
    most = 0
    async with playing(log, streams, window=Bound(10, 10_000)) as play:
        for _ in range(100):
            log.append(*["slow quick"] * 10)
            await until(lambda: has_all(log, streams, "quick"))
            status = play.status().targets[0]
            most = max(most, status.waiting_entries)
        streams["slow"].apply_s = 0
        await until(lambda: has_all(log, streams))
    assert 0 < most <= 2 * 50 + 100, "both queues, and one read on top"


async def test_a_stalled_target_is_found_and_fenced_and_recovers(log: MemoryLog) -> None:
    streams = MemoryStreams("stalled", "quick")
    async with playing(log, streams) as play:
        log.append("stalled quick")
        await until(lambda: has_all(log, streams))
        first = streams["stalled"].greetings[-1]
        streams["stalled"].hangs = True
        for _ in range(50):
            log.append(*["stalled quick"] * 10)
            await until(lambda: has_all(log, streams, "quick"))
            assert play.status().targets[0].waiting_entries <= 2 * 50 + 100
        await until(lambda: streams.opened[0].is_closed)
        assert play.status().targets[0].link in ("not connected", "greeted")
        streams["stalled"].hangs = False
        await until(lambda: has_all(log, streams))
        assert streams["stalled"].greetings[-1] > first


async def test_where_nobody_gets_on_nothing_more_is_read(log: MemoryLog) -> None:
    streams = MemoryStreams("a")
    async with playing(log, streams, silent_heartbeats=10_000) as play:
        log.append("a")
        await until(lambda: has_all(log, streams))
        streams["a"].apply_s = 3600.0
        log.append(*["a"] * 1000)
        await until(lambda: not play.core.has_room)
        await asyncio.sleep(0.1)
        assert play.core.current_position < 300 and max(log.reads) < 300
        streams["a"].apply_s = 0
        await until(lambda: has_all(log, streams))


async def test_one_read_may_bring_more_entries_than_may_wait(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    async with playing(log, streams) as play:
        await until(lambda: play.core.started)
        log.append(*["a b"] * 95)
        await until(lambda: has_all(log, streams))
        assert [each.overflows for each in play.status().targets] == [0, 0]
        assert play.main.entries == 95 and play.main.reads <= 3


async def test_a_target_unreachable_at_the_start_blocks_no_other(log: MemoryLog) -> None:
    streams = MemoryStreams("gone", "silent", "there")
    streams["gone"].is_up = False
    streams["silent"].hangs = True
    log.append("gone silent there", "there")
    async with playing(log, streams):
        await until(lambda: has_all(log, streams, "there"))
        streams["gone"].restart()
        streams["silent"].hangs = False
        await until(lambda: has_all(log, streams))


async def test_another_player_goes_on_where_the_targets_stand(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    log.append(*["a b"] * 20)
    async with playing(log, streams):
        await until(lambda: has_all(log, streams))
    streams["b"].crash()
    log.append(*["a b", "a"] * 20)
    async with playing(log, streams, player_term=2):
        await until(lambda: has_all(log, streams, "a"))
    streams["b"].restart()
    async with playing(log, streams, player_term=3) as play:
        await until(lambda: has_all(log, streams))
        assert min(log.reads[-5:]) >= 0 and play.core.player_term == 3


async def test_a_newer_player_ends_this_one(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    streams["b"].mark = Mark(LOG_ID, 8, 1, -1)
    streams["b"].restart()
    made = PlayerDriver(
        log, streams, route, settings(), 7, [TargetEndpoint("a", "a"), TargetEndpoint("b", "b")]
    )
    with pytest.raises(Deposed, match="term 8") as raised:
        await made.run()
    assert raised.value.player_term == 8
    assert made.status().ended_because == str(raised.value)
    assert [stream.is_closed or stream.is_broken for stream in streams.opened] == [True, True]


async def ended(log: MemoryLog, streams: MemoryStreams, router: Router = route) -> PlayerStopped:
    with pytest.raises(PlayerStopped) as raised:
        async with asyncio.timeout(20):
            await PlayerDriver(log, streams, router, settings(), 1, [TargetEndpoint("a", "a")]).run()
    assert all(stream.is_closed for stream in streams.opened)
    return raised.value


async def test_a_router_that_fails_ends_the_playing(log: MemoryLog) -> None:
    def fails(entry: Entry) -> list[tuple[str, Part]]:
        raise KeyError(f"entry {entry.position}")

    log.append("a")
    assert "entry 0" in str(await ended(log, MemoryStreams("a"), router=fails))

    def doubles(entry: Entry) -> list[tuple[str, Part]]:
        return route(entry) * 2

    assert "two parts" in str(await ended(log, MemoryStreams("a"), router=doubles))


async def test_a_source_that_ends_or_fails_ends_the_playing(log: MemoryLog) -> None:
    streams = MemoryStreams("a")
    asyncio.get_running_loop().call_later(0.05, log.end)
    assert str(await ended(log, streams)) == "the topic was deleted"

    class Broken(MemoryLog):
        async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
            raise OSError("the disk is gone")

    assert str(await ended(Broken(), MemoryStreams("a"))) == "OSError: the disk is gone"


async def test_what_retention_took_before_it_was_read(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    streams = MemoryStreams("a", "b")
    log.append("a b", "a")
    async with playing(log, streams) as play:
        await until(lambda: has_all(log, streams))
        streams["b"].crash()
        await until(lambda: play.status().targets[1].state == "S")
        log.append(*["a b"] * 5)
        await until(lambda: has_all(log, streams, "a"))
        log.trim(5)
        streams["b"].restart()
        await until(lambda: bool(play.status().targets[1].stopped_because))
        assert play.status().targets[1].stopped_because == "it needs 1, the log begins at 5"
        assert "topic-0: target b is stopped: it needs 1, the log begins at 5" in caplog.messages
        log.append("a b")
        await until(lambda: has_all(log, streams, "a"))


async def test_the_main_stream_loses_what_it_has_not_read(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        log.append("a")
        await until(lambda: has_all(log, streams))
        log.skip(10)
        log.first_position = 9  # before anybody could read it
        log.changed()
        log.append("a")
        await until(lambda: play.core.current_position == 11)
        await until(lambda: bool(play.status().targets[0].stopped_because) or has_all(log, streams))
    assert "topic-0: the log begins at 9 now, where 1 was to be read" in caplog.messages


async def test_a_target_that_takes_a_question_for_a_greeting(log: MemoryLog) -> None:
    """It has a mark from then on, which says what is wrong."""
    streams = MemoryStreams("a")
    takes = streams["a"].hello

    def hello(stream: MemoryStream) -> None:
        if stream.handshake.hello.player_term == 0:
            stream.tells(stream.events.on_greeted, -1)
        else:
            takes(stream)

    streams["a"].hello = hello  # type: ignore[method-assign]
    log.append("a", "a")
    log.trim(1)
    async with playing(log, streams) as play:
        words = "it needs 0, the log begins at 1"
        await until(lambda: play.status().targets[0].stopped_because == words)
        assert len(streams.opened) == 2


async def test_a_mark_beyond_the_log_stops_that_target_alone(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    streams["b"].mark = Mark(LOG_ID, 1, 1, 100)
    streams["b"].restart()
    async with playing(log, streams, player_term=2) as play:
        await until(lambda: bool(play.status().targets[1].stopped_because))
        assert play.status().targets[1].stopped_because == "it has stored 100, the log ends before 0"
        log.append("a")
        await until(lambda: has_all(log, streams, "a"))


async def test_an_empty_fetch_is_repeated(log: MemoryLog) -> None:
    streams = MemoryStreams("a", "b")
    async with playing(log, streams) as play:
        log.append("a b")
        await until(lambda: has_all(log, streams))
        streams["a"].crash()
        log.append(*["a b"] * 3)
        await until(lambda: has_all(log, streams, "b"))
        log.answers_nothing = 2
        streams["a"].restart()
        await until(lambda: has_all(log, streams))
        assert play.target_counters("a").fetches >= 3 and play.target_counters("a").recoveries == 1


async def test_the_first_record_without_a_target_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # a playing each
        log, streams = MemoryLog(), MemoryStreams("a")
        async with playing(log, streams) as play:
            log.append("a", "a b")
            await until(lambda: play.core.unrouted == 1)
            log.append("c", "b")
            await until(lambda: play.core.unrouted == 3)
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 2, said
    assert said[0].startswith("topic-0: a record is for target 'b', which is not there: such records")


async def test_targets_come_and_go(log: MemoryLog) -> None:
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        log.append("a b", "b", "a b")
        await until(lambda: has_all(log, streams, "a"))
        await until(lambda: play.core.unrouted == 3)
        streams.targets |= MemoryStreams("b").targets
        play.add("b", "b", 1)
        await until(lambda: streams["b"].applied == [1, 2])
        with pytest.raises(ValueError, match="there is a target"):
            play.add("b", "b")
        play.stop("b", "a rest")
        assert play.status().targets[1].stopped_because == "a rest" and streams.opened[-1].is_closed
        log.append("a b")
        await until(lambda: has_all(log, streams, "a"))
        assert streams["b"].applied == [1, 2]
        play.resume("b")
        await until(lambda: streams["b"].applied == [1, 2, 3])
        play.remove("b")
        assert [each.name for each in play.status().targets] == ["a"]
        log.append("a b")
        await until(lambda: has_all(log, streams, "a"))
        play.add("b", "b", 1)
        await until(lambda: streams["b"].applied == [1, 2, 3, 4])
        for call in (play.remove, play.resume, play.target_counters):
            with pytest.raises(KeyError):
                call("nobody")
        with pytest.raises(KeyError):
            play.stop("nobody", "")


async def test_an_event_within_a_step_waits_for_its_end(log: MemoryLog) -> None:
    """A transport that fails a stream, or answers on it, while it opens it."""
    streams = MemoryStreams("a", "b", at_once=True)
    streams["b"].mark = Mark(LOG_ID, 1, 1, 100)
    streams["b"].restart()
    async with playing(log, streams, player_term=2) as play:
        await until(lambda: bool(play.status().targets[1].stopped_because))
        play.remove("b")
        assert [each.name for each in play.status().targets] == ["a"]
        streams["a"].crash()
        await until(lambda: len(streams.opened) > 4)
        streams["a"].restart()
        log.append("a")
        await until(lambda: has_all(log, streams, "a"))


async def test_marks_move_without_entries(log: MemoryLog) -> None:
    streams = MemoryStreams("rare", "busy")
    async with playing(log, streams, dummy_every=10) as play:
        for _ in range(40):
            log.append("busy")
            await asyncio.sleep(0)
        await until(lambda: has_all(log, streams))
        await until(lambda: play.status().targets[0].last_ack > 20)
        counters = play.target_counters("rare")
        assert counters.dummies > 0 and counters.parts == 0 and counters.sent_bytes == 0
        busy = play.target_counters("busy")
        assert (busy.parts, busy.sent_bytes) == (40, 400) and busy.batches <= 41
        assert busy.acknowledgements >= busy.batches


async def test_the_end_leaves_nothing_behind(log: MemoryLog) -> None:
    before = asyncio.all_tasks()
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        log.append("a")
        await until(lambda: has_all(log, streams))
    assert asyncio.all_tasks() == before and all(stream.is_closed for stream in streams.opened)
    written = [len(stream.batches) for stream in streams.opened]
    play.step(play.core.tick)
    log.append("a")
    await asyncio.sleep(0.05)
    assert [len(stream.batches) for stream in streams.opened] == written
    assert expected(log, "a") == [0, 1] and streams["a"].applied == [0]


async def test_status_in_numbers(log: MemoryLog) -> None:
    streams = MemoryStreams("a")
    async with playing(log, streams) as play:
        log.append("a", "a")
        await until(lambda: play.status().targets[0].last_ack == 1)
        status = play.status()
        assert (status.log_id, status.topic, status.partition) == (LOG_ID, "topic", 0)
        assert status.started and status.player_term == 1 and not status.ended_because
        (target,) = status.targets
        assert (target.link, target.state, target.target_term, target.lag) == ("open", "N", 1, 0)
        assert (target.waiting_entries, target.unacknowledged_entries) == (0, 0)
        streams["a"].apply_s = 3600.0
        log.append("a")
        await until(lambda: play.status().targets[0].unacknowledged_entries == 1)
        (target,) = play.status().targets
        assert (target.lag, target.unacknowledged_bytes, target.cannot_keep_up) == (1, 10, False)
