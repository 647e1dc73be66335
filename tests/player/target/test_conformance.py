"""Any target program, judged by player.proto alone: what it answers, and what it has applied.

Its process is killed (kill -9) between messages and within transactions; how programs are started is in
`programs`, and what goes over the wire in `wire`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from lockstep.protocol.records.compression import Codec
from tests.player.target.programs import PROGRAMS, Applied, TargetProgram, running
from tests.player.target.wire import Ended, PlayerEnd, only, part, player_end, records

pytestmark = pytest.mark.timeout(900)
"""The first case may have to build a program."""

LOG = "cluster/topic/3"
Streams = Callable[[], PlayerEnd]


@pytest.fixture(params=PROGRAMS, ids=lambda kind: kind.name)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetProgram]:
    with running(request.param, tmp_path) as started:
        yield started


@pytest.fixture
def stream(target: TargetProgram) -> Iterator[Streams]:
    """Opens streams to where the target listens now; all are closed at the end."""
    with contextlib.ExitStack() as streams:
        yield lambda: streams.enter_context(player_end(target.address))


def one(position: int) -> Any:
    """A part with one record, which its position names."""
    return part(position, records(position, [(b"k%d" % position, b"v%d" % position)]))


def applied_at(*positions: int, log_id: str = LOG) -> list[Applied]:
    """What the parts `one` of these positions leave."""
    return [Applied(log_id, position, b"k%d" % position) for position in positions]


def greet(stream: Streams, terms: tuple[int, int], first_position: int = 0) -> tuple[PlayerEnd, int]:
    opened = stream()
    opened.hello(LOG, terms, first_position)
    return opened, opened.greeted()


# --- greetings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_position", [0, 1, 1000, 1 << 40])
def test_a_target_without_a_mark_begins_at_the_hellos_position(stream: Streams, first_position: int) -> None:
    assert greet(stream, (1, 1), first_position)[1] == first_position - 1
    assert greet(stream, (1, 2), first_position + 500)[1] == first_position - 1, "from then on it has a mark"


@pytest.mark.parametrize("terms", [(5, 7), (5, 6), (4, 8), (0, 0), (5, 0)], ids=str)
def test_stale_terms_get_the_newest_in_the_response(stream: Streams, terms: tuple[int, int]) -> None:
    newest, _ = greet(stream, (5, 7))
    late = stream()
    late.hello(LOG, terms)
    assert late.stale() == (5, 7)
    late.end()
    newest.batch(-1, one(0))
    assert newest.acknowledged() == 0, "the stream that was greeted goes on"


@pytest.mark.parametrize("terms", [(5, 8), (6, 1), (6, 7)], ids=str)
def test_terms_are_compared_as_a_pair(stream: Streams, terms: tuple[int, int]) -> None:
    greet(stream, (5, 7))
    assert greet(stream, terms)[1] == -1


def test_terms_outlive_the_process(target: TargetProgram, stream: Streams) -> None:
    greet(stream, (5, 7))
    target.kill()
    target.start()
    late = stream()
    late.hello(LOG, (5, 7))
    assert late.stale() == (5, 7)
    assert greet(stream, (5, 8))[1] == -1


def test_a_greeting_ends_the_older_stream(target: TargetProgram, stream: Streams) -> None:
    older, _ = greet(stream, (1, 1))
    older.batch(-1, one(0))
    assert older.acknowledged() == 0
    newer, position = greet(stream, (1, 2))
    assert position == 0
    older.batch(0, one(1))
    with contextlib.suppress(Ended):  # without a word is enough
        assert older.stale() == (1, 2)
    older.end()
    newer.heartbeat()
    assert newer.acknowledged() == 0, "what the older stream sent afterwards was not stored"
    target.kill()
    assert target.applied() == applied_at(0)


def test_a_greeting_is_answered_when_older_transactions_are_over(
    target: TargetProgram, stream: Streams
) -> None:
    older, _ = greet(stream, (1, 1))
    with target.held():
        older.batch(-1, one(0))
        older.heartbeat()
        assert older.acknowledged() == -1, "the transaction has begun, or is about to"
        older.batch(0, one(1))
        older.heartbeat()
        assert older.acknowledged() == -1, "and more waits"
        newer = stream()
        newer.hello(LOG, (1, 2))
        time.sleep(0.2)  # true of any order, but this is the one that most goes wrong in: it came in time
    answered = newer.greeted()
    assert answered in (-1, 0, 1)
    older.end()
    newer.heartbeat()
    assert newer.acknowledged() == answered, "nothing of the older stream was stored after the answer"
    target.kill()
    assert target.applied() == applied_at(*range(answered + 1))
    target.start()
    assert greet(stream, (1, 3))[1] == answered


def test_logs_have_marks_of_their_own(target: TargetProgram, stream: Streams) -> None:
    here, _ = greet(stream, (9, 9))
    other = stream()
    other.hello("cluster/topic/4", (1, 1), 100)
    assert other.greeted() == 99
    here.batch(-1, one(0))
    assert here.acknowledged() == 0
    other.batch(99, one(100))
    assert other.acknowledged() == 100
    target.kill()
    assert target.applied() == [*applied_at(0), *applied_at(100, log_id="cluster/topic/4")]


# --- batches ----------------------------------------------------------------------------------------------


def test_acknowledgements_are_cumulative_and_never_go_back(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    for position in range(300):
        player.batch(position - 1, one(position))
    said = player.acknowledged_through(299)
    assert said == sorted(said)
    assert said[-1] == 299
    target.kill()
    assert target.applied() == applied_at(*range(300))


def test_positions_may_be_sparse(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1), 10)
    player.batch(9, one(17), one(40))
    player.batch(40, one(1 << 33))
    player.acknowledged_through(1 << 33)
    target.kill()
    assert target.applied() == applied_at(17, 40, 1 << 33)


@pytest.mark.parametrize("previous_position", [6, 5, 100, -1], ids=str)
def test_a_gap_ends_the_stream_and_nothing_is_stored(
    target: TargetProgram, stream: Streams, previous_position: int
) -> None:
    player, _ = greet(stream, (1, 1))
    player.batch(-1, one(4))
    assert player.acknowledged() == 4
    player.batch(previous_position, one(8), one(9))
    assert str(player.end()), "in words"
    again, position = greet(stream, (1, 2))
    assert position == 4
    again.batch(4, one(8))
    assert again.acknowledged() == 8
    target.kill()
    assert target.applied() == applied_at(4, 8)


def test_duplicates_are_dropped_and_acknowledged(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    player.batch(-1, one(0), one(3))
    assert player.acknowledged() == 3
    player.batch(-1, one(0), one(3))
    assert player.acknowledged() == 3
    player.batch(0, one(3), one(4), part(6), one(7))
    player.acknowledged_through(7)
    again, position = greet(stream, (1, 2))
    assert position == 7
    again.batch(3, one(4), part(6), one(7), one(9))
    again.acknowledged_through(9)
    target.kill()
    assert target.applied() == applied_at(0, 3, 4, 7, 9)


def test_a_dummy_moves_the_mark_and_applies_nothing(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    player.batch(-1, part(20))
    assert player.acknowledged() == 20
    target.kill()
    target.start()
    player, position = greet(stream, (1, 2))
    assert position == 20, "it is stored, with nothing else"
    player.batch(20, one(21), part(50))
    assert player.acknowledged() == 50
    target.kill()
    target.start()
    player, position = greet(stream, (1, 3))
    assert position == 50, "and behind something"
    player.batch(50, one(51))
    assert player.acknowledged() == 51
    target.kill()
    assert target.applied() == applied_at(21, 51)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_records_of_every_codec(target: TargetProgram, stream: Streams, codec: Codec) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"no value", None),
        (b"", b""),
        (b"\x00\xff", b"long " * 5000),
        (b"key", bytes(range(256)) * 3),
        (b"gone", b"value"),
        (b"gone", None),
    ]
    player, _ = greet(stream, (1, 1))
    player.batch(-1, part(107, records(100, pairs, codec)))
    assert player.acknowledged() == 107
    target.kill()
    assert target.applied() == [Applied(LOG, 100 + at, key) for at, (key, _) in enumerate(pairs)]
    assert target.values() == {
        b"key": bytes(range(256)) * 3,
        b"": b"",
        b"\x00\xff": b"long " * 5000,
    }


def test_records_keep_their_offsets_where_others_were_taken_out(
    target: TargetProgram, stream: Streams
) -> None:
    whole = records(10, [(b"k%d" % position, b"v%d" % position) for position in range(10, 20)])
    player, _ = greet(stream, (1, 1))
    player.batch(-1, part(19, only(whole, {11, 14, 18})))
    assert player.acknowledged() == 19
    target.kill()
    assert target.applied() == applied_at(11, 14, 18)


# --- heartbeats -------------------------------------------------------------------------------------------


def test_a_heartbeat_is_answered_with_what_is_stored(stream: Streams) -> None:
    player, _ = greet(stream, (1, 1), 7)
    player.heartbeat()
    assert player.acknowledged() == 6
    player.batch(6, one(7))
    assert player.acknowledged() == 7
    player.heartbeat()
    assert player.acknowledged() == 7


def test_a_heartbeat_is_answered_while_a_transaction_runs(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    player.batch(-1, one(0))
    assert player.acknowledged() == 0
    with target.held():
        for position in range(1, 20):
            player.batch(position - 1, one(position))
        for _ in range(3):
            player.heartbeat()
            assert player.acknowledged() == 0
    player.acknowledged_through(19)


# --- what breaks the rules --------------------------------------------------------------------------------


def test_the_first_message_is_a_hello(target: TargetProgram, stream: Streams) -> None:
    for say in (lambda player: player.batch(-1, one(0)), PlayerEnd.heartbeat):
        player = stream()
        say(player)
        with pytest.raises(Ended) as ended:
            player.said()
        assert ended.value.status is not grpc.StatusCode.OK
    assert greet(stream, (1, 1))[1] == -1, "and the target goes on"


def test_a_stream_has_one_hello(stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    player.hello(LOG, (1, 2))
    assert player.end().status is not grpc.StatusCode.OK


@pytest.mark.parametrize("damage", ["cut", "flipped", "not a batch", "more than one"])
def test_a_batch_that_cannot_be_read_changes_nothing(
    target: TargetProgram, stream: Streams, damage: str
) -> None:
    whole = records(1, [(b"k1", b"v1"), (b"k2", b"v2")])
    damaged = {
        "cut": whole[:-1],
        "flipped": whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:],
        "not a batch": b"hello",
        "more than one": whole + whole[:30],
    }[damage]
    player, _ = greet(stream, (1, 1))
    player.batch(-1, one(0), part(2, damaged), one(3))
    assert player.end().status is not grpc.StatusCode.OK
    again, position = greet(stream, (1, 2))
    assert position == -1, "a batch is stored whole, or not at all"
    again.batch(-1, one(0))
    assert again.acknowledged() == 0
    target.kill()
    assert target.applied() == applied_at(0)


# --- deaths -----------------------------------------------------------------------------------------------


def test_what_is_acknowledged_outlives_a_kill(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    for position in range(50):
        player.batch(position - 1, one(position))
    acknowledged = player.acknowledged()
    target.kill()
    target.start()
    again, position = greet(stream, (1, 2))
    assert acknowledged <= position < 50
    for later in range(position + 1, 60):
        again.batch(later - 1, one(later))
    again.acknowledged_through(59)
    target.kill()
    assert target.applied() == applied_at(*range(60)), "each once, in order"


def test_a_kill_within_a_transaction_leaves_nothing_of_it(target: TargetProgram, stream: Streams) -> None:
    player, _ = greet(stream, (1, 1))
    player.batch(-1, one(0))
    assert player.acknowledged() == 0
    with target.held():
        player.batch(0, one(1), one(2))
        player.heartbeat()
        assert player.acknowledged() == 0
        target.kill()
    assert target.applied() == applied_at(0)
    target.start()
    again, position = greet(stream, (1, 2))
    assert position == 0
    again.batch(0, one(1), one(2))
    assert again.acknowledged() == 2
    target.kill()
    assert target.applied() == applied_at(0, 1, 2)


def test_kills_at_any_time_and_each_record_is_applied_once(target: TargetProgram, stream: Streams) -> None:
    """The kill comes after a different number of acknowledgements each time, with everything sent."""
    last, position = 199, -1
    for target_term in range(1, 7):
        player, position = greet(stream, (1, target_term))
        for later in range(position + 1, last + 1):
            player.batch(later - 1, one(later))
        for _ in range(target_term - 1):
            if position < last:
                position = player.acknowledged()
        target.kill()
        found = target.applied()
        assert found == applied_at(*range(len(found)))
        assert len(found) > position, "what was acknowledged is there"
        target.start()
    player, position = greet(stream, (2, 1))
    for later in range(position + 1, last + 1):
        player.batch(later - 1, one(later))
    if position < last:
        player.acknowledged_through(last)
    assert target.stop() == 0
    assert target.applied() == applied_at(*range(last + 1))
