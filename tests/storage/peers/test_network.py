"""What a broker has of its peers: messages, things told, questions, and word of who is there."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.storage.peers.network import PeerError, PeerLimits, PeerUnreachable
from lockstep.storage.peers.outgoing import CONNECTION_REFUSED
from lockstep.storage.raft.messages import Append, Heartbeat, Install, Message, VoteRequest
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from tests.storage.peers.nodes import Node, nodes, until

QUICK = PeerLimits(last_pause_seconds=0.1)
SLOW = PeerLimits(first_pause_seconds=60, last_pause_seconds=60)
MiB = 1 << 20


def frames_of(size: int, sender: int = 1, to: int = 2) -> Append:
    return Append(sender, to, 3, 4, 3, [(5, 3)], 5, [], 4, 9, [bytearray(size)], 7)


async def test_two_nodes_that_dial_each_other_at_once_both_connect() -> None:
    async with nodes(2) as (first, second):
        assert first.network.is_up(2) and second.network.is_up(1) and not first.network.is_up(3)
        assert first.greeted == [(2, b"hello")] * 2, "one for each connection"
        first.network.send(2, 7, Heartbeat(1, 2, 3, 4, 5))
        second.network.send(1, 8, frames_of(100_000, 2, 1))
        first.network.send(
            2, 7, Install(1, 2, 3, 4, 5, 6, True, 7, ChunkPayload(PayloadKind.FRAMES, [b"x"], 9))
        )
        await until(lambda: len(second.messages) == 2 and len(first.messages) == 1)
        assert (7, Heartbeat(1, 2, 3, 4, 5)) in second.messages
        (group_id, message), *_ = first.messages
        assert group_id == 8 and isinstance(message, Append) and message.frames == [bytes(100_000)]


async def test_a_large_append_delays_no_heartbeat() -> None:
    async with nodes(2) as (first, second):
        first.network.send(2, 1, frames_of(16 * MiB))
        for place in range(3):
            first.network.send(2, 1, Heartbeat(1, 2, 3, place, 5))
        await until(lambda: len(second.messages) == 4)
        assert [type(message) for _, message in second.messages] == [Heartbeat] * 3 + [Append]
        message = second.messages[3][1]
        assert isinstance(message, Append) and list(map(len, message.frames)) == [16 * MiB]


async def test_messages_to_an_absent_node_are_dropped() -> None:
    async with nodes(2, QUICK) as (first, second):
        first.network.send(3, 1, Heartbeat(1, 3, 3, 4, 5))
        first.network.notify(3, 1, b"")
        with pytest.raises(PeerUnreachable):
            await first.network.request(3, 1, b"", 1)
        await second.network.close()
        await until(lambda: first.links[-1] == (2, False))
        first.network.send(2, 1, Heartbeat(1, 2, 3, 4, 5))
        with pytest.raises(PeerUnreachable):
            await first.network.request(2, 1, b"", 1)


async def test_a_message_that_cannot_be_sent_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(2, PeerLimits(frame_bytes=100_000)) as (first, second):
        first.network.send(2, 1, Heartbeat(1, 2, 3, 1 << 63, 5))
        assert "cannot be sent" in caplog.text
        first.network.send(2, 1, frames_of(100_000))
        assert "too large to be sent" in caplog.text
        first.network.send(2, 1, Message(1, 2, 3))
        first.network.send(2, 1, frames_of(90_000))
        await until(lambda: len(second.messages) == 1)
        assert first.network.is_up(2)


async def test_a_peer_that_restarts_is_reached_again() -> None:
    async with nodes(2, QUICK) as (first, second):
        await second.network.close()
        await until(lambda: first.links[-1] == (2, False))
        first.network.notify(2, 1, b"older")
        first.network.notify(2, 1, b"newer")
        first.network.notify(2, 2, b"other")
        await until(lambda: bool(first.absent))  # an attempt failed: nobody listens there
        assert set(first.absent) == {2}
        await second.start(QUICK)
        second.add_node(first)
        await until(lambda: first.links == [(2, True), (2, False), (2, True)])
        await until(lambda: len(second.told) == 2)
        assert sorted(second.told) == [(1, 1, b"newer"), (1, 2, b"other")]
        first.network.send(2, 1, frames_of(10))
        await until(lambda: len(second.messages) == 1)


async def test_a_node_in_contact_has_not_ended_though_a_connection_is_refused() -> None:
    """As a firewall may for a host that lives."""
    async with nodes(2, SLOW) as (first, second):
        for server in second.network._servers:
            server.close()
        for each in list(second.network._incoming.values()):
            each.abort()
        await until(lambda: first.links[-1] == (2, False))
        await _dialed_in_vain(first)
        assert first.network.has_connection_from(2) and first.absent == []
        second.network.forget(1)  # its own links end, and nobody dials any more
        await until(lambda: first.absent == [2])


async def test_a_node_that_ended_before_the_next_dial_is_absent_with_it() -> None:
    async with nodes(2, SLOW) as (first, second):
        await second.network.close()
        await until(lambda: first.links[-1] == (2, False) and not first.network.has_connection_from(2))
        assert first.absent == [], "a link may be lost for other reasons"
        await _dialed_in_vain(first)
        assert first.absent == [2]


async def _dialed_in_vain(node: Node) -> None:
    """Node 2 is dialed once more, and something there refuses."""
    control = node.network._peers[2].control

    def is_refused() -> bool:
        if control.problem == CONNECTION_REFUSED:
            return True
        control.retry_now()
        return False

    await until(is_refused)


async def test_a_rejected_node_is_notified_once_and_accepted_later() -> None:
    await _refused_and_let_in()


async def test_repeated_rejections_are_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    await _refused_and_let_in()
    assert [each.getMessage().endswith("is rejected: not of this cluster") for each in caplog.records] == [
        True
    ]


async def _refused_and_let_in() -> None:
    async with nodes(2, QUICK) as (_, second):
        third = Node(3)
        await third.start(QUICK)
        try:
            second.refuses[3] = "not of this cluster"
            third.add_node(second)
            await until(lambda: third.refused == [(2, "not of this cluster")])
            before = len(second.greeted)
            await until(lambda: len(second.greeted) >= before + 3)
            assert third.refused == [(2, "not of this cluster")] and not third.links
            del second.refuses[3]
            await until(lambda: third.links == [(2, True)])
        finally:
            await third.network.close()


async def test_a_wrong_address_is_noticed_and_a_new_one_taken() -> None:
    async with nodes(2, QUICK) as (first, second):
        third = Node(3)
        await third.start(QUICK)
        try:
            first.network.add_node(3, "127.0.0.1", second.port)
            await until(lambda: first.refused == [(3, "this is node 2, not 3")])
            first.add_node(third)
            await until(lambda: (3, True) in first.links)
            first.add_node(third)
            assert first.network.is_up(3), "nothing new, nothing done"
            first.network.add_node(3, "127.0.0.1", second.port)
            await until(lambda: first.links[-1] == (3, False))
        finally:
            await third.network.close()


async def test_names_are_resolved() -> None:
    async with nodes(1) as (first,):
        second = Node(2)
        await second.start()
        try:
            first.network.add_node(2, "localhost", second.port)
            await until(lambda: first.links == [(2, True)])
        finally:
            await second.network.close()


async def test_a_forgotten_node_is_not_dialed_and_its_connections_end() -> None:
    async with nodes(2, QUICK) as (first, second):
        second.refuses[1] = "gone"
        first.network.forget(2)
        first.network.forget(2)
        await until(lambda: first.links == [(2, True), (2, False)])
        await until(lambda: second.links[-1] == (1, False) or second.links.count((1, False)) > 0)
        assert not first.network.is_up(2)
        greeted = len(second.greeted)
        await asyncio.sleep(0.2)
        assert len(second.greeted) == greeted, "it was not dialed"


async def test_questions_are_answered_or_refused() -> None:
    async def answer(node_id: int, kind: int, body: bytes) -> bytes:
        if kind == 1:
            return b"%d asked %s" % (node_id, body)
        if kind == 2:
            raise PeerError("not the controller")
        if kind == 3:
            return bytes(200_000)
        raise ValueError("a mistake")

    async with nodes(2) as (first, second):
        second.answer = answer
        ask = first.network.request
        assert await ask(2, 1, b"this", 5) == b"1 asked this"
        with pytest.raises(PeerError, match="not the controller"):
            await ask(2, 2, b"", 5)
        with pytest.raises(PeerError, match="ValueError at node 2"):
            await ask(2, 4, b"", 5)
        answers = await asyncio.gather(*(ask(2, 1, b"%d" % place, 5) for place in range(50)))
        assert answers == [b"1 asked %d" % place for place in range(50)]
        assert await ask(2, 3, bytes(300_000), 5) == bytes(200_000), "both over the bulk link"


async def test_a_question_ends_with_its_time_or_its_link() -> None:
    gate = asyncio.Event()

    async def answer(node_id: int, kind: int, body: bytes) -> bytes:
        await gate.wait()
        return body

    async with nodes(2, PeerLimits(max_requests=2, last_pause_seconds=0.1)) as (first, second):
        second.answer = answer
        with pytest.raises(TimeoutError):
            await first.network.request(2, 1, b"", 0.02)
        waiting = asyncio.ensure_future(first.network.request(2, 1, b"x", 5))
        with pytest.raises(PeerError, match="too many"):
            await asyncio.wait_for(_when_busy(first), 5)
        gate.set()
        assert await waiting == b"x"
        gate.clear()
        waiting = asyncio.ensure_future(first.network.request(2, 1, b"y", 5))
        await asyncio.sleep(0.02)
        await second.network.close()
        with pytest.raises(PeerUnreachable):
            await waiting


async def test_questions_of_one_kind_keep_none_of_another_out() -> None:
    """Those that wait for what another kind brings would all wait until their time is over."""
    gate = asyncio.Event()

    async def answer(node_id: int, kind: int, body: bytes) -> bytes:
        if kind == 1:
            await gate.wait()
        return body

    async with nodes(2, PeerLimits(max_requests=2)) as (first, second):
        second.answer = answer
        ask = first.network.request
        waiting = [asyncio.ensure_future(ask(2, 1, b"%d" % place, 5)) for place in range(2)]
        await asyncio.sleep(0)  # they are asked before it
        assert await ask(2, 2, b"x", 5) == b"x"
        with pytest.raises(PeerError, match="too many"):
            await ask(2, 1, b"", 5)
        gate.set()
        assert await asyncio.gather(*waiting) == [b"0", b"1"]


async def _when_busy(node: Node) -> None:
    """Two questions are being answered: the one that ran out of time and one more."""
    await asyncio.sleep(0.02)
    await node.network.request(2, 1, b"", 5)


async def test_an_answer_too_large_is_an_error() -> None:
    async def answer(node_id: int, kind: int, body: bytes) -> bytes:
        return bytes(100_000)

    async with nodes(2, PeerLimits(frame_bytes=50_000)) as (first, second):
        second.answer = answer
        with pytest.raises(PeerError, match="could not be sent"):
            await first.network.request(2, 1, b"", 5)


async def test_sends_leave_before_send_returns() -> None:
    """The leader flushes right after: the loop does not run before that."""
    async with nodes(2) as (first, _):
        await asyncio.sleep(0.02)
        peer = first.network._peers[2]
        first.network.send(2, 1, VoteRequest(1, 2, 3, True, 4, 5))
        first.network.send(2, 1, frames_of(10_000))
        assert peer.control.waiting_bytes == peer.bulk.waiting_bytes == 0


async def test_what_an_owner_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(2, QUICK) as (first, second):
        second.told = None  # type: ignore[assignment]
        first.network.notify(2, 1, b"")
        await until(lambda: "a callback about a peer failed" in caplog.text)
        first.network.send(2, 1, Heartbeat(1, 2, 3, 4, 5))
        await until(lambda: len(second.messages) == 1)
        assert first.network.is_up(2)


async def test_a_network_can_be_closed_at_any_time() -> None:
    for pause in (0, 0.001, 0.005):
        one, other = Node(1), Node(2)
        await one.start()
        await other.start()
        one.add_node(other)
        other.add_node(one)
        await asyncio.sleep(pause)
        await one.network.close()
        one.add_node(other)
        one.network.send(2, 1, Heartbeat(1, 2, 3, 4, 5))
        await other.network.close()
        assert not one.network.is_up(2)
