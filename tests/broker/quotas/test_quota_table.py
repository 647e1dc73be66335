"""The quota that applies to a client: Kafka's eight levels, who shares one, and filters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from lockstep.broker.metadata.quota_commands import apply_quota_command
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
    entity_of,
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


class CountedLookups(dict[QuotaEntity, dict[str, float]]):
    """A dictionary that counts how often it is walked through."""

    scans = 0

    def __iter__(self) -> Iterator[QuotaEntity]:
        self.scans += 1
        return super().__iter__()

    def items(self) -> Any:
        self.scans += 1
        return super().items()


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
    table.set(entity_of([("ip", "2001:DB8::0:1")]), CONNECTION_CREATION_RATE, 4)
    assert [table.connection_rate(each) for each in ("192.0.2.1", "2001:db8::1", "192.0.2.2")] == [3, 4, 7]
    assert table.has_connection_rates and not table.has_client_quotas
    table.remove((("ip", None),), CONNECTION_CREATION_RATE)
    assert table.connection_rate("192.0.2.2") is None


def test_a_new_connection_looks_at_no_other_addresses() -> None:
    table = QuotaTable()
    for number in range(100):
        table.set((("ip", f"192.0.2.{number}"),), CONNECTION_CREATION_RATE, number + 1)
    values = table._values = CountedLookups(table._values)
    assert table.connection_rate("192.0.2.99") == 100 and table.connection_rate("192.0.2.200") is None
    assert table.has_connection_rates and not table.has_client_quotas
    assert values.scans == 0


def test_the_forms_of_an_address_are_one_entity() -> None:
    assert entity_of([("ip", "::ffff:192.0.2.1")]) == entity_of([("ip", "192.0.2.1")])
    table = QuotaTable()
    command = {"do": "quota", "entity": [["ip", "::FFFF:192.0.2.1"]], "key": "k"}
    apply_quota_command(table, command | {"value": 3})
    table.set(entity_of([("ip", "2001:DB8::1")]), CONNECTION_CREATION_RATE, 4)
    entities = [(("ip", "192.0.2.1"),), (("ip", "2001:db8::1"),)]
    assert [entity for entity, _ in table.items()] == entities
    for exact, found in (("::ffff:192.0.2.1", entities[:1]), ("2001:db8:0::1", entities[1:]), ("host", [])):
        assert [entity for entity, _ in table.find_matching({"ip": exact}, set(), False)] == found
    apply_quota_command(table, command)
    assert len(table) == 1


def test_whether_there_are_quotas_follows_each_change() -> None:
    table = QuotaTable()
    user, address = LEVELS[2][0], (("ip", None),)

    def found() -> tuple[bool, bool]:
        return table.has_client_quotas, table.has_connection_rates

    table.remove(address, CONNECTION_CREATION_RATE)
    assert found() == (False, False)
    for _ in range(2):
        table.set(address, CONNECTION_CREATION_RATE, 1)
    assert found() == (False, True)
    table.set(user, PRODUCER_BYTE_RATE, 1)
    table.remove(user, CONSUMER_BYTE_RATE)
    assert found() == (True, True)
    table.remove(address, CONNECTION_CREATION_RATE)
    assert found() == (True, False)
    table.clear()
    assert found() == (False, False)


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
