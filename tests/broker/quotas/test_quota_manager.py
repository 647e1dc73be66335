"""The quotas of a node's clients: who shares what, what changes change, and how much is remembered."""

from __future__ import annotations

import pytest

from lockstep.broker.quotas import quota_manager
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    MAX_NAME_CHARACTERS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from lockstep.broker.quotas.quota_manager import QuotaManager
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.errors import ErrorCode

ALICE: QuotaEntity = (("user", "alice"),)
DEFAULT_CLIENT: QuotaEntity = (("client-id", None),)


def client_of(name: str) -> ClientContext:
    return ClientContext("PLAINTEXT", "192.0.2.1:5", "", KafkaPrincipal("User", name))


class Node:
    """Quotas on a clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.table = QuotaTable()
        self.quotas = QuotaManager(self.table, lambda: self.now_ms)

    def set(self, entity: QuotaEntity, key: str, value: float) -> None:
        self.table.set(entity, key, value)
        self.quotas.on_change()

    def remove(self, entity: QuotaEntity, key: str) -> None:
        self.table.remove(entity, key)
        self.quotas.on_change()

    def produce(self, name: str, client_id: str, size: int) -> int:
        quota = self.quotas.quota_of(client_of(name), client_id)
        return 0 if quota is None or quota.produce is None else quota.produce.charge(size, self.now_ms)


def test_a_client_without_a_quota_has_none() -> None:
    node = Node()
    assert not node.quotas.is_active and node.quotas.quota_of(client_of("alice"), "app") is None
    node.set(ALICE, PRODUCER_BYTE_RATE, 1_000)
    assert node.quotas.is_active and node.quotas.quota_of(client_of("bob"), "app") is None
    assert node.quotas.limits_produce(client_of("alice"), "app")
    assert not node.quotas.limits_fetch(client_of("alice"), "app")
    node.set(ALICE, REQUEST_PERCENTAGE, 5)
    assert node.quotas.limits_fetch(client_of("alice"), None)
    assert not node.quotas.limits_fetch(client_of("bob"), "app")


def test_the_clients_of_a_user_share_its_quota_and_those_of_a_default_do_not() -> None:
    node = Node()
    node.set(ALICE, PRODUCER_BYTE_RATE, 1_000)
    node.set(DEFAULT_CLIENT, PRODUCER_BYTE_RATE, 1_000)
    assert node.produce("alice", "one", 10_000) == 0
    assert node.produce("alice", "two", 10_000) == 10_000
    assert node.produce("bob", "one", 10_000) == 0 and node.produce("bob", "two", 10_000) == 0
    assert node.produce("carol", "one", 10_000) == 10_000  # a client id is the same, whose ever it is


def test_a_change_keeps_what_was_counted_and_a_removal_forgets_it() -> None:
    node = Node()
    node.set(ALICE, PRODUCER_BYTE_RATE, 1_000)
    assert node.produce("alice", "app", 50_000) == 40_000
    node.set(ALICE, PRODUCER_BYTE_RATE, 2_000)
    assert node.produce("alice", "app", 0) == 15_000
    assert node.quotas.throttle_ms(client_of("alice"), "app") == 15_000
    node.remove(ALICE, PRODUCER_BYTE_RATE)
    assert node.produce("alice", "app", 50_000) == 0 == node.quotas.throttle_ms(client_of("alice"), "app")
    node.set(ALICE, PRODUCER_BYTE_RATE, 1_000)
    assert node.produce("alice", "app", 10_000) == 0


def test_the_time_of_requests_waits_a_second_at_most() -> None:
    node = Node()
    node.set(ALICE, REQUEST_PERCENTAGE, 1)
    quota = node.quotas.quota_of(client_of("alice"), "app")
    assert quota is not None and quota.request is not None
    assert quota.request.charge(10, 0) == 0  # 100 ms of the loop's time, of which 1 % of 10 s are
    assert quota.request.charge(1, 0) == 1_000


def test_the_clients_of_a_user_share_its_bucket() -> None:
    node = Node()
    node.set(ALICE, CONTROLLER_MUTATION_RATE, 1)  # eleven at once
    node.quotas.mutation_of(client_of("alice"), "one", True).record(12)
    with pytest.raises(RequestError):
        node.quotas.mutation_of(client_of("alice"), "two", True).record(1)


def test_partitions_are_accepted_until_there_is_a_debt() -> None:
    node = Node()
    node.set(ALICE, CONTROLLER_MUTATION_RATE, 1)  # eleven at once
    strict = node.quotas.mutation_of(client_of("alice"), "app", True)
    strict.record(10)
    strict.record(11)  # one token was left
    assert strict.throttle_ms() == 0
    with pytest.raises(RequestError) as caught:
        strict.record(1)
    assert caught.value.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert strict.throttle_ms() == 10_000
    node.now_ms += 4_000
    assert strict.throttle_ms() == 6_000
    older = node.quotas.mutation_of(client_of("alice"), "app", False)
    older.record(2)
    assert older.throttle_ms() == 8_000
    assert node.quotas.mutation_of(client_of("bob"), "app", True).throttle_ms() == 0


def test_another_node_has_no_quota() -> None:
    node = Node()
    node.set((("user", None),), CONTROLLER_MUTATION_RATE, 1)
    peer = ClientContext("", "", "")
    peer.is_forwarded = True
    quota = node.quotas.mutation_of(peer, None, True)
    quota.record(1_000)
    quota.record(1_000)
    assert quota.throttle_ms() == 0


def test_connections_above_the_rate_are_held_for_a_second_at_most_and_do_not_count() -> None:
    node = Node()
    node.set((("ip", None),), CONNECTION_CREATION_RATE, 2)
    assert node.quotas.has_connection_rates and not node.quotas.is_active
    held = [node.quotas.connection_throttle_ms("192.0.2.1") for _ in range(23)]
    assert held == [0] * 20 + [500] * 3
    assert node.quotas.throttled_ms[CONNECTION_CREATION_RATE] == 1_500
    assert node.quotas.connection_throttle_ms("::ffff:192.0.2.1") == 500, "the same address"
    assert node.quotas.connection_throttle_ms("192.0.2.2") == 0
    node.remove((("ip", None),), CONNECTION_CREATION_RATE)
    assert node.quotas.connection_throttle_ms("192.0.2.1") == 0


def test_what_is_remembered_of_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_manager, "MAX_CLIENTS", 4)
    node = Node()
    node.set(DEFAULT_CLIENT, PRODUCER_BYTE_RATE, 1_000)
    node.set(DEFAULT_CLIENT, CONTROLLER_MUTATION_RATE, 1)
    for number in range(3):
        node.produce("alice", f"idle-{number}", 1)
    node.now_ms = 60_000
    assert node.produce("alice", "busy", 20_000) == 10_000
    for number in range(20):
        node.produce("alice", f"new-{number}", 1)
        assert max(len(node.quotas._rates), len(node.quotas._buckets), len(node.quotas._clients)) <= 4
        if number == 1:
            assert node.produce("alice", "busy", 0) == 10_000  # the idle ones went first


def test_long_names_are_not_kept() -> None:
    node = Node()
    long, other = "x" * 32_000, "x" * 31_999 + "y"
    for key in (PRODUCER_BYTE_RATE, CONTROLLER_MUTATION_RATE):
        node.set((("user", None), ("client-id", None)), key, 1_000)
    for user, client_id in (("alice", long), (long, "app")):
        assert node.produce(user, client_id, 20_000) == 10_000
        assert node.produce(user, client_id, 1_000) == 11_000, "it is counted like any other"
    assert node.produce("alice", other, 1) == 0 == node.produce("alice", "x" * 1_000, 1)
    kept = [*node.quotas._clients, *node.quotas._buckets, *(name for _, name in node.quotas._rates)]
    assert len(kept) == 12 and max(len(part) for name in kept for part in name) <= MAX_NAME_CHARACTERS


def test_room_is_made_for_all_rates_of_a_client_before_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_manager, "MAX_CLIENTS", 8)
    node = Node()
    for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE):
        node.set(DEFAULT_CLIENT, key, 1_000)
    for number in range(20):
        client_id = f"app-{number}"
        quota = node.quotas.quota_of(client_of("alice"), client_id)
        assert quota is not None
        for key, rate in (
            (PRODUCER_BYTE_RATE, quota.produce),
            (CONSUMER_BYTE_RATE, quota.fetch),
            (REQUEST_PERCENTAGE, quota.request),
        ):
            assert node.quotas._rates[key, ("", client_id)] is rate
            assert len(node.quotas._rates) <= 8


def test_consumers_and_producers_are_counted_apart() -> None:
    node = Node()
    node.set(ALICE, PRODUCER_BYTE_RATE, 1_000)
    node.set(ALICE, CONSUMER_BYTE_RATE, 1_000)
    assert node.produce("alice", "app", 10_000) == 0
    quota = node.quotas.quota_of(client_of("alice"), "app")
    assert quota is not None and quota.fetch is not None
    assert quota.fetch.charge(10_000, 0) == 0 and quota.fetch.charge(1_000, 0) == 1_000
