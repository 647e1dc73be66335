"""One connection: order of replies, one write per turn, back-pressure, and mistakes that stay within it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import struct

import pytest

from lockstep.broker.requests.request_context import ConnectionRejected, PendingResponse
from lockstep.broker.server import Broker
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from lockstep.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import StartBroker
from tests.broker.fakes import open_connections
from tests.broker.network.rig import Rig, ask
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request, frame, produce_request


async def test_replies_in_order_of_requests(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1), ask(2), ask(3))
    assert rig.asked() == [1, 2, 3]
    rig.answer(3)
    rig.answer(2)
    assert await rig.sent() == []
    rig.answer(1)
    assert await rig.sent() == [1, 2, 3]
    assert len(rig.transport.writes) == 1


async def test_an_answer_at_once_waits_for_older_ones(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1))
    rig.versions.now = ApiVersionsResponse()
    rig.receive(ask(2))
    assert await rig.sent() == []
    rig.answer(1)
    assert await rig.sent() == [1, 2]


async def test_one_write_per_turn(broker: Broker) -> None:
    rig = Rig(broker)
    rig.versions.now = ApiVersionsResponse()
    for correlation_id in range(50):
        rig.receive(ask(correlation_id))
    assert rig.transport.writes == []
    assert await rig.sent() == list(range(50))
    assert len(rig.transport.writes) == 1


async def test_a_request_without_a_response_keeps_the_order(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1), ask(2), ask(3))
    dict(rig.versions.asked)[2].complete(None)
    rig.answer(3)
    rig.answer(1)
    assert await rig.sent() == [1, 3]


async def test_too_many_in_flight_are_left_unread(broker: Broker) -> None:
    rig = Rig(broker, max_in_flight=2)
    rig.receive(*(ask(number) for number in range(1, 8)))
    assert rig.asked() == [1, 2]
    assert not rig.transport.reading
    rig.answer(1)
    assert rig.asked() == [1, 2, 3]
    for number in range(2, 8):
        rig.answer(number)
    assert rig.asked() == list(range(1, 8))
    assert rig.transport.reading
    assert await rig.sent() == list(range(1, 8))
    assert rig.shared.in_flight_bytes == 0


async def test_answers_at_once_do_not_recurse(broker: Broker) -> None:
    rig = Rig(broker, max_in_flight=1)
    rig.receive(*(ask(number) for number in range(3000)))
    done = PendingResponse()
    done.complete(ApiVersionsResponse())
    rig.versions.now = done
    rig.answer(0)
    assert await rig.sent() == list(range(3000))


def take_long(rig: Rig) -> None:
    """Each request takes 8 ms from now on: with the third one a turn is over."""
    rig.shared.clock = (number * 0.008 for number in itertools.count()).__next__


async def test_requests_that_take_long_leave_others_their_turn(broker: Broker) -> None:
    """Batches of one read whose records had to be opened held the loop for two minutes."""
    rig = Rig(broker)
    take_long(rig)
    rig.receive(*(ask(number) for number in range(1, 9)))
    assert rig.asked() == [1, 2, 3]
    assert not rig.transport.reading
    rig.answer(1)
    assert rig.asked() == [1, 2, 3], "whatever makes room, it is the others' turn"
    await asyncio.sleep(0)
    assert rig.asked() == list(range(1, 7))
    assert not rig.transport.reading
    await asyncio.sleep(0)
    assert rig.asked() == list(range(1, 9))
    assert rig.transport.reading
    for number in range(2, 9):
        rig.answer(number)
    assert await rig.sent() == list(range(1, 9))
    assert rig.shared.in_flight_bytes == 0


async def test_reads_and_answers_of_one_turn_are_counted_together(broker: Broker) -> None:
    """The loop may read a connection 32 times in a turn, and a commit answer hundreds of its requests."""
    rig = Rig(broker, max_in_flight=4)
    take_long(rig)
    for number in (1, 2, 3):
        rig.receive(ask(number))
    assert not rig.transport.reading
    await asyncio.sleep(0)
    assert rig.transport.reading
    rig.receive(*(ask(number) for number in range(4, 9)))
    assert rig.asked() == [1, 2, 3, 4]
    for number in (1, 2, 3):
        rig.answer(number)
    assert rig.asked() == [1, 2, 3, 4, 5, 6], "the third answer makes room, too"
    await asyncio.sleep(0)
    assert rig.asked() == [1, 2, 3, 4, 5, 6, 7]


async def test_a_connection_may_close_while_others_have_their_turn(broker: Broker) -> None:
    rig = Rig(broker)
    take_long(rig)
    rig.receive(*(ask(number) for number in range(1, 9)))
    rig.versions.asked[0][1].fail(ValueError("planted"))
    assert rig.transport.closed
    await asyncio.sleep(0)
    rig.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert rig.asked() == [1, 2, 3]
    assert rig.shared.in_flight_bytes == 0


class Working(PendingResponse):
    """A request that goes on in later turns."""

    blocks_connection = True
    hurried = 0

    def on_shutdown(self) -> None:
        self.hurried += 1


async def test_a_request_that_goes_on_in_later_turns_has_its_connection_for_itself(broker: Broker) -> None:
    rig = Rig(broker)
    for first in (1, 3):
        working, answer = Working(), PendingResponse()
        rig.versions.now = working
        rig.receive(ask(first))
        rig.versions.now = None
        rig.connection.resume_writing()
        assert not rig.transport.reading, "whatever makes room"
        working.complete(answer)
        assert rig.transport.reading
        rig.receive(ask(first + 1))
        assert rig.asked() == list(range(1, first + 2))
        rig.answer(first + 1)
        answer.complete(ApiVersionsResponse())
        assert await rig.sent() == list(range(1, first + 2))
        assert rig.shared.in_flight_bytes == 0


async def test_what_came_with_it_waits_for_it_and_for_the_others_turn(broker: Broker) -> None:
    rig = Rig(broker)
    take_long(rig)
    working = Working()
    rig.receive(ask(1), ask(2))
    rig.versions.now = working
    rig.receive(ask(3))
    rig.versions.now = None
    assert rig.asked() == [1, 2, 3]
    await asyncio.sleep(0)
    assert not rig.transport.reading
    working.fail(ValueError("planted"))
    assert rig.transport.closed

    rig = Rig(broker)
    working = Working()
    rig.versions.now = working
    rig.receive(ask(1), ask(2))
    rig.versions.now = None
    assert rig.asked() == [1] and not rig.transport.reading
    working.complete(ApiVersionsResponse())
    assert rig.asked() == [1, 2] and rig.transport.reading


async def test_a_request_that_goes_on_is_no_long_poll(broker: Broker) -> None:
    """A stop lets it be answered; a connection that breaks ends it."""
    rig = Rig(broker)
    given_up: list[int] = []
    working = Working()
    working.on_disconnect = lambda: given_up.append(1)
    rig.versions.now = working
    rig.receive(ask(1))
    rig.connection.quiesce()
    assert not rig.transport.closed and working.hurried == 1
    rig.connection.connection_lost(None)
    assert given_up == [1]


async def test_a_client_that_does_not_read_is_not_read_from(broker: Broker) -> None:
    rig = Rig(broker, write_buffer_bytes=100)
    rig.versions.now = ApiVersionsResponse()
    rig.connection.pause_writing()
    rig.receive(*(ask(number) for number in range(20)))
    assert rig.asked() == []
    assert not rig.transport.reading
    rig.connection.resume_writing()
    assert len(rig.asked()) == 20
    assert rig.transport.reading
    assert len(await rig.sent()) == 20


async def test_output_is_given_to_the_transport_before_it_grows(broker: Broker) -> None:
    rig = Rig(broker, write_buffer_bytes=100)
    rig.versions.now = ApiVersionsResponse()
    rig.receive(*(ask(number) for number in range(100)))
    assert len(rig.transport.writes) > 5


async def test_one_fetch_at_a_time(broker: Broker) -> None:
    rig = Rig(broker)
    fetch = frame(FetchRequest(), 4, 9)
    rig.receive(fetch, ask(1), fetch, ask(2))
    assert (len(rig.fetches.asked), rig.asked()) == (1, [1])
    rig.fetches.asked[0][1].complete(FetchResponse())
    assert (len(rig.fetches.asked), rig.asked()) == (2, [1, 2])


async def test_answers_that_wait_for_older_ones_are_bounded(broker: Broker) -> None:
    rig = Rig(broker, write_buffer_bytes=100)
    rig.receive(ask(1))
    rig.versions.now = ApiVersionsResponse()
    rig.receive(*(ask(number) for number in range(2, 100)))
    assert len(rig.asked()) < 20
    assert not rig.transport.reading
    rig.answer(1)
    assert rig.asked() == list(range(1, 100))
    assert rig.transport.reading
    assert await rig.sent() == list(range(1, 100))
    assert rig.connection._pending_reply_bytes == 0


async def test_large_answers_count_until_they_are_taken(broker: Broker) -> None:
    rig = Rig(broker, write_buffer_bytes=100)
    unsent_bytes = rig.shared.unsent_bytes
    large = FetchResponse(responses=[FetchableTopicResponse(topic="t" * 200)])
    rig.receive(ask(1), frame(FetchRequest(), 4, 2))
    rig.fetches.asked[0][1].complete(large)
    assert unsent_bytes.total > 200, "it waits for an older answer"
    rig.answer(1)
    assert unsent_bytes.total > 200, "it waits for the end of the turn"
    assert await rig.sent() == [1, 2]
    assert unsent_bytes.total == 0
    rig.fetches.now = large
    rig.receive(frame(FetchRequest(), 4, 3))
    assert unsent_bytes.total > 200
    await rig.sent()
    rig.transport.unsent = 5000  # its client does not read
    rig.connection.pause_writing()
    assert unsent_bytes.total == 5000
    rig.transport.unsent = 20
    rig.connection.resume_writing()
    assert unsent_bytes.total == 0
    rig.connection.pause_writing()
    assert unsent_bytes.total == 20
    rig.connection.connection_lost(None)
    assert unsent_bytes.total == 0


async def test_a_client_that_never_reads_a_response_is_disconnected(broker: Broker) -> None:
    rig = Rig(broker)
    ends: list[str] = []
    rig.transport.close = lambda: ends.append("close")  # type: ignore[method-assign]
    rig.transport.abort = lambda: ends.append("abort")  # type: ignore[method-assign]
    rig.transport.unsent = 5000
    rig.connection.pause_writing()
    for now in (0.0, 100.0, 200.0):
        rig.connection.reap_idle(now, 150, False)
    assert ends == ["close"], "what was written is sent first"
    rig.connection.reap_idle(210.0, 150, False)
    rig.connection.reap_idle(241.0, 150, False)
    assert ends == ["close", "abort"]


async def test_a_client_that_reads_responses_slowly_is_not_idle(broker: Broker) -> None:
    rig = Rig(broker)
    rig.transport.unsent = 5000
    rig.connection.pause_writing()
    for now in range(0, 1000, 100):
        rig.transport.unsent -= 1
        rig.connection.reap_idle(now, 150, False)
    assert not rig.transport.closed
    for now in range(1000, 1300, 100):
        rig.connection.reap_idle(now, 150, False)
    assert rig.transport.closed


async def test_an_answer_that_waits_for_an_older_one_is_not_idleness(broker: Broker) -> None:
    rig = Rig(broker, write_buffer_bytes=4)
    rig.receive(ask(1))
    rig.versions.now = ApiVersionsResponse()
    rig.receive(ask(2))
    assert rig.shared.unsent_bytes.total > 4
    for now in (0.0, 100.0, 200.0, 300.0):
        rig.connection.reap_idle(now, 150, False)
    assert not rig.transport.closed


async def test_a_muted_connection_may_be_idle_and_one_whose_time_slice_is_over_is_not(broker: Broker) -> None:
    muted, sliced = Rig(broker), Rig(broker)
    muted.connection.mute()
    sliced.connection._pauses += 1
    for now in (0.0, 100.0, 200.0):
        muted.connection.reap_idle(now, 150, False)
        sliced.connection.reap_idle(now, 150, False)
    assert muted.transport.closed and not sliced.transport.closed


async def test_a_muted_connection_whose_client_hangs_up_is_closed(broker: Broker) -> None:
    rig = Rig(broker)
    rig.connection.mute()
    rig.connection.on_disconnect_detected(24)  # the end of a TLS session
    assert rig.transport.closed
    rig.connection.unmute()
    assert rig.connection.is_closing


async def test_requests_that_a_client_leaves_behind_are_served_before_its_end(broker: Broker) -> None:
    unread, queued, half = Rig(broker), Rig(broker), Rig(broker)
    half.receive(ask(1)[:-1])
    for each in (unread, queued, half):
        each.connection.mute()
    queued.receive(ask(1))
    unread.connection.on_disconnect_detected(100)
    queued.connection.on_disconnect_detected(0)
    half.connection.on_disconnect_detected(1)
    assert not any(each.transport.closed for each in (unread, queued, half))
    queued.connection.unmute()
    assert queued.asked() == [1]
    half.connection.on_disconnect_detected(0)
    assert half.transport.closed
    queued.connection.mute()
    queued.connection.on_disconnect_detected(None)
    assert queued.transport.closed


async def test_a_client_that_waits_for_memory_is_not_idle(broker: Broker) -> None:
    rig = Rig(broker, max_in_flight_bytes=20)
    rig.shared.on_request_start(26)
    rig.receive(ask(1))
    for now in (0.0, 100.0, 200.0):
        rig.connection.reap_idle(now, 150, False)
    assert rig.asked() == []
    assert not rig.transport.closed
    rig.shared.on_request_end(26)
    await asyncio.sleep(0)
    assert rig.asked() == [1]


async def test_a_closing_connection_gives_back_its_requests_room(broker: Broker) -> None:
    """Its client takes nothing, so that its transport is never through with what was written."""
    rig = Rig(broker)
    rig.receive(ask(1), ask(2))
    given_up: list[int] = []
    rig.versions.asked[0][1].on_disconnect = lambda: given_up.append(1)
    rig.receive(struct.pack(">i", -1))
    assert rig.transport.closed
    assert (rig.shared.in_flight_bytes, given_up) == (0, [1])
    rig.answer(1)
    rig.answer(2)
    rig.connection.connection_lost(None)
    assert (rig.shared.in_flight_bytes, given_up) == (0, [1])
    assert await rig.sent() == []


async def test_a_closing_connection_is_dropped_once_its_client_takes_nothing(broker: Broker) -> None:
    rig = Rig(broker)
    aborted: list[bool] = []
    rig.transport.abort = lambda: aborted.append(True)  # type: ignore[method-assign]
    rig.receive(ask(1), struct.pack(">i", -1))
    rig.transport.unsent = 5000
    for now in range(0, 160, 20):
        rig.transport.unsent -= 1
        rig.connection.reap_idle(now, math.inf, False)
    assert not aborted
    rig.connection.reap_idle(160, math.inf, False)
    rig.connection.reap_idle(180, math.inf, False)
    assert aborted


async def test_what_is_answered_later_holds_up_nobody_once_it_is_known_that_it_can_be(broker: Broker) -> None:
    rig = Rig(broker)

    class Later(PendingResponse):
        holds_request = False

    certain, later = asyncio.Event(), Later()

    async def with_read_barrier() -> object:
        await certain.wait()
        return later

    rig.versions.now = with_read_barrier()
    rig.receive(ask(1))
    rig.versions.now = None
    rig.receive(ask(2))
    assert rig.asked() == [1]
    certain.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.asked() == [1, 2]
    rig.answer(2)
    assert await rig.sent() == []
    assert rig.shared.in_flight_bytes == len(ask(2)) - 4
    later.complete(ApiVersionsResponse())
    assert await rig.sent() == [1, 2]
    assert rig.shared.in_flight_bytes == 0


async def test_waiting_requests_are_abandoned_with_their_connection(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1), ask(2))
    given_up: list[int] = []
    for number, deferred in rig.versions.asked:
        deferred.on_disconnect = lambda number=number: given_up.append(number)
    rig.connection.connection_lost(None)
    assert given_up == [1, 2]
    assert rig.shared.in_flight_bytes == 0
    rig.answer(1)
    assert await rig.sent() == []


async def test_a_failing_handler_ends_its_connection_only(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(broker)
    rig.versions.failure = ZeroDivisionError("planted")
    with caplog.at_level(logging.WARNING):
        rig.receive(ask(1), ask(2))
    assert rig.transport.closed
    assert rig.asked() == [1]
    assert "192.0.2.1:5" in caplog.text
    assert "planted" in caplog.text


async def test_a_refused_connection_needs_no_traceback(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(broker)
    rig.versions.failure = ConnectionRejected("not like this")
    with caplog.at_level(logging.WARNING):
        rig.receive(ask(1))
    assert rig.transport.closed
    assert "not like this" in caplog.text
    later = Rig(broker)
    with caplog.at_level(logging.WARNING):
        later.receive(ask(1))
        dict(later.versions.asked)[1].fail(ConnectionRejected("nor like that"))
    assert later.transport.closed
    assert "nor like that" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_response_that_cannot_be_encoded_is_no_client_error(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(broker)
    rig.versions.now = ApiVersionsResponse(api_keys=None)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        rig.receive(ask(1))
    assert rig.transport.closed
    assert "ResponseEncodingError" in caplog.text  # with its traceback


async def test_a_failed_answer_ends_its_connection(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1))
    rig.versions.asked[0][1].fail(ValueError("planted"))
    assert rig.transport.closed


async def test_a_completed_response_raises_nothing_for_its_connection(broker: Broker) -> None:
    rig = Rig(broker, max_in_flight=1)
    rig.receive(ask(1), ask(2))

    def broken() -> None:
        raise RuntimeError("planted: the transport is closed already")

    rig.transport.resume_reading = broken  # type: ignore[method-assign]
    rig.answer(1)
    rig.answer(2)
    assert rig.transport.closed


# --- over real sockets ------------------------------------------------------------------------------------


MALFORMED = [
    struct.pack(">i", -1),
    struct.pack(">i", 2**31 - 1),
    b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
    b"GET / HTTP/1.1\r\n\r\n",
    struct.pack(">i", 0),
    struct.pack(">i", 3) + b"abc",
    struct.pack(">ihhih", 10, 999, 0, 1, -1),  # an API nobody knows
    struct.pack(">ihhih", 10, 0, 99, 1, -1),  # a version nobody knows
    struct.pack(">ihhih", 10, 0, 2, 1, -1),  # advertised, not served
    struct.pack(">ihhih", 10, 36, 0, 1, -1),  # SASL, without asking whether there is any
    struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),  # an array of 2^31 topics
]


@pytest.mark.parametrize("raw", MALFORMED, ids=range(len(MALFORMED)))
async def test_malformed_bytes_end_their_connection_only(broker: Broker, client: Client, raw: bytes) -> None:
    victim = await Client.connect(broker.port)
    victim.writer.write(raw)
    assert await victim.is_closed()
    await victim.close()
    assert (await client.call(MetadataRequest(topics=[]), 12)).cluster_id


async def test_good_requests_before_a_bad_frame_are_answered(broker: Broker) -> None:
    client = await Client.connect(broker.port)
    client.writer.write(ask(5) + struct.pack(">i", -7))
    raw = await client.receive_raw()
    assert struct.unpack_from(">i", raw) == (5,)
    assert await client.is_closed()


async def test_pipelined_requests_without_reading(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_connection_write_buffer_bytes="65536")
    writer = await Client.connect(broker.port)
    await writer.create("t")
    for _ in range(8):
        await writer.produce("t", batch(b"x" * 100_000))
    client = await Client.connect(broker.port)
    count = 300
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    request = fetch_request({"t": {0: 0}}, max_bytes=1 << 20)
    for _ in range(count):
        client.send(request, 12)
    # it waits for its client, with little in memory
    opened = open_connections(broker.assembly.connections)
    await until(lambda: sum(bool(each._queued_frames) for each in opened) == 1, 60)
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for number in range(1, count + 1):
        correlation_id, _ = await asyncio.wait_for(client.receive(request, 12), 10)
        assert correlation_id == number
    await client.close()
    await writer.close()


async def test_pipelined_produce_of_one_turn(broker: Broker, client: Client) -> None:
    await client.create("t")
    requests = [produce_request("t", batch(b"%d" % number)) for number in range(200)]
    for request in requests:
        client.send(request, 9)
    offsets = []
    for request in requests:
        _, response = await client.receive(request, 9)
        offsets.append(response.responses[0].partition_responses[0].base_offset)  # type: ignore[attr-defined]
    assert offsets == list(range(200))


async def test_a_request_over_the_limit(start_broker: StartBroker) -> None:
    broker = await start_broker(socket_request_max_bytes="2000")
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"x" * 1000))
    client.send(produce_request("t", batch(b"x" * 3000)), 9)
    assert await client.is_closed()
