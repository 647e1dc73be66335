"""Muted connections: until when, what a change of quotas ends, and what a closed one leaves behind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

from lockstep.broker.network.throttles import Throttles
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    MAX_NAME_CHARACTERS,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from lockstep.broker.quotas.quota_manager import QuotaManager
from lockstep.broker.quotas.quota_table import QuotaTable
from tests.broker.fakes import client

CLIENT: QuotaEntity = (("client-id", "app"),)


class Timer:
    """One call that is due."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call = at, call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop's clock and timers, which a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., object], *args: object) -> Timer:
        timer = Timer(self.now + seconds, lambda: call(*args))
        self.timers.append(timer)
        return timer

    def advance(self, to: float) -> None:
        self.now = to
        due = [each for each in self.timers if each.at <= to and not each.cancelled]
        self.timers = [each for each in self.timers if each.at > to and not each.cancelled]
        for each in due:
            each.call()


class FakeConnection:
    """Counts how often it is muted."""

    def __init__(self) -> None:
        self.context = client()
        self.mutes = 0
        self.is_aborted = self.is_closing = False
        self.socket: socket.socket | None = None
        self.disconnected: list[int | None] = []

    def mute(self) -> None:
        self.mutes += 1

    def unmute(self) -> None:
        self.mutes -= 1

    def abort(self) -> None:
        self.is_aborted = True

    def fileno(self) -> int:
        return -1 if self.socket is None else self.socket.fileno()

    def on_disconnect_detected(self, unread_bytes: int | None) -> None:
        self.disconnected.append(unread_bytes)

    def on_response(self, *_: object) -> None:
        """No response comes here."""


class Node:
    """Throttled connections on a clock that a test moves."""

    def __init__(self) -> None:
        self.loop, self.table = Loop(), QuotaTable()
        self.quotas = QuotaManager(self.table, lambda: int(self.loop.now * 1000))
        self.throttles = Throttles(self.quotas, cast(Any, self.loop))

    def set(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        if value is None:
            self.table.remove(entity, key)
        else:
            self.table.set(entity, key, value)
        self.quotas.on_change()
        self.throttles.on_quotas_changed()


def test_a_pause_ends_at_its_time_and_a_longer_one_replaces_it() -> None:
    node, connection = Node(), FakeConnection()
    node.throttles.mute(connection, "app", 1_000)
    node.throttles.mute(connection, "app", 3_000)
    node.throttles.mute(connection, "app", 2_000)
    assert (connection.mutes, len(node.throttles)) == (1, 1)
    node.loop.advance(2.9)
    assert connection.mutes == 1
    node.loop.advance(3.0)
    assert (connection.mutes, len(node.throttles)) == (0, 0)
    node.throttles.mute(connection, "app", 500)
    node.loop.advance(3.5)
    assert connection.mutes == 0


def test_a_closed_connection_leaves_no_timer() -> None:
    node, connection = Node(), FakeConnection()
    node.throttles.mute(connection, "app", 1_000)
    node.throttles.forget(connection)
    node.throttles.forget(FakeConnection())
    assert len(node.throttles) == 0 and node.loop.timers[0].cancelled
    node.loop.advance(1.0)
    assert connection.mutes == 1, "nobody reads it again"


def test_a_connection_that_is_closed_already_is_not_throttled() -> None:
    """The response to its last request may come after its end."""
    node, connection = Node(), FakeConnection()
    node.set((("ip", "192.0.2.1"),), CONNECTION_CREATION_RATE, 1)
    connection.is_closing = True
    node.throttles.mute(connection, "app", 1_000)
    for _ in range(11):
        node.throttles.admit(connection, "192.0.2.1")
    assert (len(node.throttles), node.loop.timers, connection.mutes) == (0, [], 0)


def test_a_long_client_id_is_not_kept_for_the_wait() -> None:
    node, connection = Node(), FakeConnection()
    long = "x" * 30_000
    node.set((("client-id", None),), PRODUCER_BYTE_RATE, 1_000)
    quota = node.quotas.quota_of(connection.context, long)
    assert quota is not None and quota.produce is not None
    node.throttles.mute(connection, long, quota.produce.charge(50_000, 0))
    assert len(node.throttles._muted[connection].client_id or "") <= MAX_NAME_CHARACTERS
    node.set((("client-id", None),), PRODUCER_BYTE_RATE, 5_000)
    node.loop.advance(0.0)
    assert connection.mutes == 0


def test_a_client_that_closes_a_muted_connection_is_noticed() -> None:
    node, open_one, closed, refused = Node(), FakeConnection(), FakeConnection(), FakeConnection()
    node.set((("ip", "192.0.2.1"),), CONNECTION_CREATION_RATE, 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = []
        for each in (open_one, closed, refused):
            clients.append(socket.create_connection(listener.getsockname()))
            each.socket, _ = listener.accept()
        for each in (open_one, closed):
            node.throttles.mute(each, "app", 2**31 - 1)
        node.throttles.mute(FakeConnection(), "app", 2**31 - 1)
        for _ in range(2):
            node.throttles.admit(refused, "192.0.2.1")
        for client in clients[1:]:
            client.sendall(b"x" * 100)
            client.shutdown(socket.SHUT_WR)
        assert len(node.throttles) == 4
        node.loop.advance(1.0)
        assert closed.disconnected == [100] and open_one.disconnected == []
        closed.is_closing = True
        node.loop.advance(2.0)
        node.loop.advance(3.0)
        assert closed.disconnected == [100]
        for muted in list(node.throttles._muted):
            node.throttles.forget(muted)
        node.loop.advance(4.0)
        assert not node.loop.timers, "nothing is left to watch"
        for each in (open_one, closed, refused):
            assert each.socket is not None
            each.socket.close()
        for client in clients:
            client.close()


def test_a_change_of_quotas_shortens_a_wait_and_never_prolongs_it() -> None:
    node, connection = Node(), FakeConnection()
    node.set(CLIENT, PRODUCER_BYTE_RATE, 1_000)
    quota = node.quotas.quota_of(connection.context, "app")
    assert quota is not None and quota.produce is not None
    wait_ms = quota.produce.charge(50_000, 0)
    node.throttles.mute(connection, "app", wait_ms)
    node.set(CLIENT, PRODUCER_BYTE_RATE, 500)
    node.set(CLIENT, PRODUCER_BYTE_RATE, 2_500)  # 50,000 bytes take twenty seconds, of which ten were empty
    node.loop.advance(9.9)
    assert connection.mutes == 1
    node.loop.advance(10.0)
    assert connection.mutes == 0


def test_a_removed_quota_ends_the_wait_at_once() -> None:
    node, paused, other = Node(), FakeConnection(), FakeConnection()
    node.set(CLIENT, PRODUCER_BYTE_RATE, 1_000)
    node.set((("client-id", "other"),), PRODUCER_BYTE_RATE, 1_000)
    for connection, name in ((paused, "app"), (other, "other")):
        quota = node.quotas.quota_of(connection.context, name)
        assert quota is not None and quota.produce is not None
        node.throttles.mute(connection, name, quota.produce.charge(50_000, 0))
    node.set(CLIENT, PRODUCER_BYTE_RATE, None)
    node.loop.advance(0.0)
    assert (paused.mutes, other.mutes, len(node.throttles)) == (0, 1, 1)


def test_a_connection_too_many_is_held_and_then_closed() -> None:
    node = Node()
    node.set((("ip", "192.0.2.1"),), CONNECTION_CREATION_RATE, 1)
    connections = [FakeConnection() for _ in range(11)]
    for each in connections:
        node.throttles.admit(each, "192.0.2.1")
    assert [each.mutes for each in connections] == [0] * 10 + [1]
    node.loop.advance(0.9)
    assert not connections[-1].is_aborted
    node.loop.advance(1.0)
    assert [each.is_aborted for each in connections] == [False] * 10 + [True]
    node.throttles.admit(FakeConnection(), "192.0.2.2")
    assert not node.loop.timers
