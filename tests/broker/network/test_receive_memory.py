"""Large requests that come in part: their buffers together are bounded, and each can be finished."""

from __future__ import annotations

import asyncio
import struct

import pytest

from lockstep.broker.network.connection import Connection
from lockstep.broker.requests import router
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.broker.server import Broker
from lockstep.protocol.api import ApiKey
from lockstep.protocol.frame_reader import MAX_UNRESERVED_BYTES
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from tests.broker.network.rig import Rig, Transport, ask

MIB = 1 << 20
LIMIT_BYTES = 8 * MIB
FRAME_BYTES = 12 * MIB


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests other than Produce may be as large: what they are does not matter here."""
    monkeypatch.setattr(router, "MAX_REQUEST_BYTES", 2 * FRAME_BYTES)


class Sender:
    """A client's end: sends one large request as far as it is read."""

    def __init__(self, rig: Rig, request_bytes: int = FRAME_BYTES) -> None:
        self.transport = Transport()
        self.connection = Connection(rig.shared, "PLAINTEXT")
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        head = struct.pack(">ihhih", request_bytes, ApiKey.API_VERSIONS, 0, 7, -1)
        self.data = memoryview(head + bytes(request_bytes + 4 - len(head)))
        self.sent = 0

    def send(self, upto: int = 2 * FRAME_BYTES) -> bool:
        """Send more of it; whether all of it was read."""
        upto = min(upto, len(self.data))
        while self.sent < upto and self.transport.reading:
            room = self.connection.get_buffer(-1)
            count = min(len(room), upto - self.sent, 256 << 10)
            room[:count] = self.data[self.sent : self.sent + count]
            self.sent += count
            self.connection.buffer_updated(count)
        return self.sent == len(self.data)


@pytest.fixture
async def rig(broker: Broker) -> Rig:
    made = Rig(broker, max_in_flight_bytes=LIMIT_BYTES)
    made.versions.now = ApiVersionsResponse()
    return made


def buffers(senders: list[Sender]) -> int:
    """What the connections hold for receiving."""
    return sum(each.connection._reader.capacity_bytes for each in senders)


async def test_halves_of_large_requests_are_bounded_in_all(rig: Rig) -> None:
    senders = [Sender(rig) for _ in range(20)]
    for each in senders:
        each.send(5 * MIB)
    bound = LIMIT_BYTES + FRAME_BYTES + len(senders) * (MAX_UNRESERVED_BYTES + (128 << 10))
    assert buffers(senders) <= bound
    assert not all(each.transport.reading for each in senders)
    assert rig.shared.unfinished_frames.used_bytes <= LIMIT_BYTES + FRAME_BYTES


async def test_each_is_finished_in_the_end(rig: Rig) -> None:
    senders = [Sender(rig) for _ in range(6)]
    for each in senders:
        each.send(2 * MIB)
    for _ in senders:  # each round at least one is read to its end
        for each in senders:
            each.send()
        await asyncio.sleep(0)
    assert all(each.send() for each in senders)
    assert len(rig.versions.asked) == len(senders)
    assert rig.shared.unfinished_frames.used_bytes == 0


async def test_what_producers_send_by_default_is_not_held_up(rig: Rig) -> None:
    for each in [Sender(rig) for _ in range(20)]:
        each.send(5 * MIB)
    assert Sender(rig, MIB).send()


async def test_a_lost_connection_makes_room(rig: Rig) -> None:
    senders = [Sender(rig) for _ in range(4)]
    for each in senders:
        each.send(5 * MIB)
    waiting = [each for each in senders if not each.transport.reading]
    assert waiting
    for each in senders:
        if each not in waiting:
            each.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert waiting[0].send()
    for each in waiting:
        each.connection.connection_lost(None)
    assert rig.shared.unfinished_frames.used_bytes == 0


async def test_room_that_answers_leave_is_used_at_once(rig: Rig) -> None:
    rig.shared.on_request_start(LIMIT_BYTES)
    first, second, third = Sender(rig), Sender(rig), Sender(rig)
    for each in (first, second, third):
        each.send(2 * MIB)
    assert [each.transport.reading for each in (first, second, third)] == [True, False, False]
    rig.shared.on_request_end(LIMIT_BYTES - 5 * MIB)
    await asyncio.sleep(0)
    assert [each.transport.reading for each in (first, second, third)] == [True, False, False]
    rig.shared.on_request_end(2 * MIB)
    await asyncio.sleep(0)
    assert [each.transport.reading for each in (first, second, third)] == [True, True, False]
    rig.shared.on_request_end(3 * MIB)
    await asyncio.sleep(0)
    assert all(each.transport.reading for each in (first, second, third))


async def test_a_closing_connection_makes_room(rig: Rig) -> None:
    """Though its client takes nothing of what was written, so that it is not lost yet."""
    first, second = Sender(rig), Sender(rig)
    rig.shared.on_request_start(LIMIT_BYTES)
    first.send(2 * MIB)
    second.send(2 * MIB)
    assert not second.transport.reading
    first.connection.close()
    await asyncio.sleep(0)
    assert second.send()
    assert rig.shared.unfinished_frames.used_bytes == 0
    assert buffers([first]) < 1 * MIB
    first.connection.connection_lost(None)
    assert rig.shared.unfinished_frames.used_bytes == 0


async def test_a_whole_request_that_waits_keeps_its_room_and_lets_others_go_on(rig: Rig) -> None:
    first, second = Sender(rig), Sender(rig)
    first.connection.pause_writing()  # so what comes is not taken yet
    assert first.send()
    assert rig.versions.asked == []
    assert rig.shared.unfinished_frames.used_bytes == FRAME_BYTES + 4
    assert second.send()
    first.connection.resume_writing()
    assert len(rig.versions.asked) == 2
    assert rig.shared.unfinished_frames.used_bytes == 0


async def test_a_client_that_takes_no_answers_is_not_the_one_that_goes_on(rig: Rig) -> None:
    """Else the others would wait for it until it is closed."""
    fits, first, deaf, last = (Sender(rig) for _ in range(4))
    for each in (fits, first, deaf, last):
        each.send(5 * MIB)
    assert [each.transport.reading for each in (fits, first, deaf, last)] == [True, True, False, False]
    deaf.connection.pause_writing()
    assert first.send()
    await asyncio.sleep(0)
    assert not deaf.transport.reading
    assert last.send()
    deaf.connection.resume_writing()
    assert deaf.send()


async def test_half_a_request_counts_as_idle(rig: Rig) -> None:
    small, large = Sender(rig, 1000), Sender(rig)
    small.send(500)
    large.send(len(ask(1)))
    for now in (0.0, 100.0, 200.0):
        for each in (small, large):
            each.connection.reap_idle(now, 150, False)
    assert small.transport.closed
    assert large.transport.closed


async def test_an_answer_that_is_awaited_does_not_keep_half_a_large_request(rig: Rig) -> None:
    sender = Sender(rig)
    rig.versions.now = PendingResponse()
    request = ask(1)
    sender.connection.get_buffer(-1)[: len(request)] = request
    sender.connection.buffer_updated(len(request))
    for now in (0.0, 100.0, 200.0, 300.0):
        sender.connection.reap_idle(now, 150, False)
    assert not sender.transport.closed
    sender.send(3 * MIB)
    for now in (400.0, 500.0, 600.0):
        sender.connection.reap_idle(now, 150, False)
    assert sender.transport.closed


@pytest.mark.parametrize(("bytes_each", "closed"), [(1000, True), (MIB // 2, False)])
async def test_a_frame_that_others_wait_for_must_progress(rig: Rig, bytes_each: int, closed: bool) -> None:
    """And those who wait are not idle."""
    rig.shared.on_request_start(LIMIT_BYTES)
    first, second = Sender(rig), Sender(rig)
    first.send(2 * MIB)
    second.send(2 * MIB)
    for turn in range(15):
        first.send(2 * MIB + turn * bytes_each)
        for each in (first, second):
            each.connection.reap_idle(turn * 10.0, 60, True)
        if first.transport.closed:
            break
    assert not second.transport.closed
    assert first.transport.closed is closed
    assert turn == (4 if closed else 14)
    await asyncio.sleep(0)
    assert second.send() is closed


async def test_all_silent_connections_are_closed_at_once_while_others_wait(rig: Rig) -> None:
    """One of them each ten seconds held up large requests for minutes: who was closed first let the others be
    asked anew, and nobody seemed to wait any more."""
    silent, waits = [Sender(rig) for _ in range(3)], Sender(rig)
    for each in silent:
        each.send(3 * MIB // 2)
    rig.shared.on_request_start(LIMIT_BYTES)
    silent[0].send(3 * MIB)
    waits.send(2 * MIB)
    assert rig.shared.unfinished_frames.waiting
    for now in (0.0, 20.0, 40.0):
        rig.shared.reap_idle(now)
    assert [each.transport.closed for each in silent] == [True] * 3
    assert not waits.transport.closed


async def test_a_muted_connection_keeps_no_memory_that_others_wait_for(rig: Rig) -> None:
    muted, waits = Sender(rig), Sender(rig)
    muted.send(3 * MIB // 2)
    rig.shared.on_request_start(LIMIT_BYTES)
    muted.send(3 * MIB)
    muted.connection.mute()
    waits.send(2 * MIB)
    assert rig.shared.unfinished_frames.waiting
    for now in (0.0, 20.0, 40.0):
        rig.shared.reap_idle(now)
    assert muted.transport.closed and not waits.transport.closed


async def test_a_frame_that_none_waits_for_may_be_slow(rig: Rig) -> None:
    sender = Sender(rig)
    for turn in range(15):
        sender.send(2 * MIB + turn)
        sender.connection.reap_idle(turn * 50.0, 60, False)
    assert not sender.transport.closed
