"""Paused connections: until when, what a change of quotas ends, and what a closed one leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from lockstep.broker.network.throttles import Throttles
from lockstep.broker.quotas.quota_entity import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE, QuotaEntity
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
    """Counts its pauses."""

    def __init__(self) -> None:
        self.context = client()
        self.pauses = 0
        self.is_aborted = False

    def pause(self) -> None:
        self.pauses += 1

    def end_pause(self) -> None:
        self.pauses -= 1

    def abort(self) -> None:
        self.is_aborted = True

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
    node.throttles.pause(connection, "app", 1_000)
    node.throttles.pause(connection, "app", 3_000)
    node.throttles.pause(connection, "app", 2_000)
    assert (connection.pauses, len(node.throttles)) == (1, 1)
    node.loop.advance(2.9)
    assert connection.pauses == 1
    node.loop.advance(3.0)
    assert (connection.pauses, len(node.throttles)) == (0, 0)
    node.throttles.pause(connection, "app", 500)
    node.loop.advance(3.5)
    assert connection.pauses == 0


def test_a_closed_connection_leaves_no_timer() -> None:
    node, connection = Node(), FakeConnection()
    node.throttles.pause(connection, "app", 1_000)
    node.throttles.forget(connection)
    node.throttles.forget(FakeConnection())
    assert len(node.throttles) == 0 and node.loop.timers[0].cancelled
    node.loop.advance(1.0)
    assert connection.pauses == 1, "nobody reads it again"


def test_a_change_of_quotas_shortens_a_wait_and_never_prolongs_it() -> None:
    node, connection = Node(), FakeConnection()
    node.set(CLIENT, PRODUCER_BYTE_RATE, 1_000)
    quota = node.quotas.of(connection.context, "app")
    assert quota is not None and quota.produce is not None
    wait_ms = quota.produce.charge(50_000, 0)
    node.throttles.pause(connection, "app", wait_ms)
    node.set(CLIENT, PRODUCER_BYTE_RATE, 500)
    node.set(CLIENT, PRODUCER_BYTE_RATE, 2_500)  # 50,000 bytes take twenty seconds, of which ten were empty
    node.loop.advance(9.9)
    assert connection.pauses == 1
    node.loop.advance(10.0)
    assert connection.pauses == 0


def test_a_removed_quota_ends_the_wait_at_once() -> None:
    node, paused, other = Node(), FakeConnection(), FakeConnection()
    node.set(CLIENT, PRODUCER_BYTE_RATE, 1_000)
    node.set((("client-id", "other"),), PRODUCER_BYTE_RATE, 1_000)
    for connection, name in ((paused, "app"), (other, "other")):
        quota = node.quotas.of(connection.context, name)
        assert quota is not None and quota.produce is not None
        node.throttles.pause(connection, name, quota.produce.charge(50_000, 0))
    node.set(CLIENT, PRODUCER_BYTE_RATE, None)
    node.loop.advance(0.0)
    assert (paused.pauses, other.pauses, len(node.throttles)) == (0, 1, 1)


def test_a_connection_too_many_is_held_and_then_closed() -> None:
    node = Node()
    node.set((("ip", "192.0.2.1"),), CONNECTION_CREATION_RATE, 1)
    connections = [FakeConnection() for _ in range(11)]
    for each in connections:
        node.throttles.admit(each, "192.0.2.1")
    assert [each.pauses for each in connections] == [0] * 10 + [1]
    node.loop.advance(0.9)
    assert not connections[-1].is_aborted
    node.loop.advance(1.0)
    assert [each.is_aborted for each in connections] == [False] * 10 + [True]
    node.throttles.admit(FakeConnection(), "192.0.2.2")
    assert not node.loop.timers
