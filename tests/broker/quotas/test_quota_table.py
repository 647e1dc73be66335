"""The quota that applies to a client: Kafka's eight levels, who shares one, and filters."""

from __future__ import annotations

from itertools import combinations

from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from lockstep.broker.quotas.quota_table import QuotaTable

LEVELS: tuple[tuple[QuotaEntity, tuple[str, str]], ...] = (
    ((("user", "alice"), ("client-id", "app")), ("alice", "app")),
    ((("user", "alice"), ("client-id", None)), ("alice", "app")),
    ((("user", "alice"),), ("alice", "")),
    ((("user", None), ("client-id", "app")), ("alice", "app")),
    ((("user", None), ("client-id", None)), ("alice", "app")),
    ((("user", None),), ("alice", "")),
    ((("client-id", "app"),), ("", "app")),
    ((("client-id", None),), ("", "app")),
)
"""Each level, and who shares its quota, in Kafka's order."""


def test_the_first_level_that_has_a_quota_applies() -> None:
    for count in range(len(LEVELS) + 1):
        for chosen in combinations(range(len(LEVELS)), count):
            table = QuotaTable()
            for level in reversed(chosen):
                table.set(LEVELS[level][0], PRODUCER_BYTE_RATE, float(level + 1))
            first = min(chosen, default=None)
            expected = None if first is None else (LEVELS[first][1], first + 1)
            assert table.find(PRODUCER_BYTE_RATE, "alice", "app") == expected, chosen


def test_each_key_has_its_own_first_level() -> None:
    table = QuotaTable()
    table.set(LEVELS[0][0], CONSUMER_BYTE_RATE, 1)
    table.set(LEVELS[2][0], PRODUCER_BYTE_RATE, 2)
    assert table.find(PRODUCER_BYTE_RATE, "alice", "app") == (("alice", ""), 2)
    assert table.find(CONSUMER_BYTE_RATE, "alice", "app") == (("alice", "app"), 1)
    assert table.find(CONSUMER_BYTE_RATE, "alice", "other") is None


def test_a_client_without_an_id_has_the_quotas_of_its_user_alone() -> None:
    table = QuotaTable()
    for place in (0, 1, 3, 4, 6, 7):
        table.set(LEVELS[place][0], PRODUCER_BYTE_RATE, 1)
    assert table.find(PRODUCER_BYTE_RATE, "alice", "") is None
    table.set(LEVELS[5][0], PRODUCER_BYTE_RATE, 6)
    assert table.find(PRODUCER_BYTE_RATE, "alice", "") == (("alice", ""), 6)


def test_an_address_has_its_own_rate_or_the_default() -> None:
    table = QuotaTable()
    table.set((("ip", None),), CONNECTION_CREATION_RATE, 7)
    table.set((("ip", "192.0.2.1"),), CONNECTION_CREATION_RATE, 3)
    table.set((("ip", "2001:DB8::1"),), CONNECTION_CREATION_RATE, 4)
    rates = [
        table.connection_rate(each)
        for each in ("192.0.2.1", "2001:db8:0::1", "::ffff:192.0.2.1", "192.0.2.2")
    ]
    assert rates == [3, 4, 3, 7]
    assert table.has_connection_rates and not table.has_client_quotas
    table.remove((("ip", None),), CONNECTION_CREATION_RATE)
    assert table.connection_rate("192.0.2.2") is None


def test_a_removed_quota_leaves_nothing() -> None:
    table = QuotaTable()
    entity = LEVELS[2][0]
    table.set(entity, PRODUCER_BYTE_RATE, 1)
    table.set(entity, CONSUMER_BYTE_RATE, 1)
    table.remove(entity, PRODUCER_BYTE_RATE)
    assert dict(table.of(entity)) == {CONSUMER_BYTE_RATE: 1} and table.has_client_quotas
    table.remove(entity, CONSUMER_BYTE_RATE)
    table.remove(entity, CONSUMER_BYTE_RATE)
    assert (len(table), table.has_client_quotas, list(table.items())) == (0, False, [])


def test_a_filter_matches_names_and_types() -> None:
    table = QuotaTable()
    for entity, _ in LEVELS:
        table.set(entity, PRODUCER_BYTE_RATE, 1)
    table.set((("ip", None),), CONNECTION_CREATION_RATE, 1)

    def found(exact: dict[str, str | None], any_name: set[str], is_strict: bool = False) -> list[int]:
        entities = [entity for entity, _ in LEVELS] + [(("ip", None),)]
        return [entities.index(entity) for entity, _ in table.find_matching(exact, any_name, is_strict)]

    assert found({}, set()) == [*range(9)] and found({}, set(), True) == []
    assert found({"user": "alice"}, set()) == [0, 1, 2] and found({"user": "alice"}, set(), True) == [2]
    assert found({"user": None}, set()) == [3, 4, 5] and found({}, {"user"}) == [0, 1, 2, 3, 4, 5]
    assert found({"user": "alice"}, {"client-id"}) == [0, 1]
    assert found({"user": None, "client-id": "app"}, set(), True) == [3]
    assert found({}, {"client-id"}, True) == [6, 7] and found({}, {"ip"}) == [8]
