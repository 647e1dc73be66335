"""Checks of changes of quotas: the errors of Kafka 4.4.0, and what is recorded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from lockstep.broker.quotas import quota_changes
from lockstep.broker.quotas.quota_changes import Parts, QuotaAlteration, QuotaChange, QuotaChanges
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    entity_of,
)
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

ALICE: Parts = (("user", "alice"),)
TOO_LARGE = "Proposed value for connection_creation_rate is too large for an INT."
IP: Parts = (("ip", "192.0.2.1"),)


class Controller:
    """Records changes at once."""

    def __init__(self) -> None:
        self.table = QuotaTable()
        self.recorded: list[QuotaChange] = []
        self.failure: RequestError | None = None
        self.commits: list[int] = []
        self.changes = QuotaChanges(self.table, self.record, asyncio.Lock())

    async def record(self, changes: Sequence[QuotaChange]) -> None:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.commits.append(len(changes))
        self.recorded += changes
        for each in changes:
            if each.value is None:
                self.table.remove(each.entity, each.key)
            else:
                self.table.set(each.entity, each.key, each.value)

    async def alter(self, parts: Parts, *operations: tuple[str, float | None], dry: bool = False) -> str:
        results = await self.changes.change([QuotaAlteration(parts, operations)], dry)
        (error,) = results.values()
        assert error is None or error.error is ErrorCode.INVALID_REQUEST
        return "" if error is None else error.message


@each_case(
    ("parts", "key", "value", "problem"),
    [
        ((), PRODUCER_BYTE_RATE, 1, "Invalid empty client quota entity"),
        ((("zone", "a"),), PRODUCER_BYTE_RATE, 1, "Unhandled client quota entity type: zone"),
        ((("user", ""),), PRODUCER_BYTE_RATE, 1, "Empty user not supported"),
        ((("user", "x" * 1001),), PRODUCER_BYTE_RATE, 1, "The name of a quota entity has 1001 characters"),
        (
            (("ip", "192.0.2.1"), ("user", "a")),
            PRODUCER_BYTE_RATE,
            1,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            (("ip", "not.an.address"),),
            CONNECTION_CREATION_RATE,
            1,
            "not.an.address is not a valid IP or resolvable host.",
        ),
        (ALICE, "no_such_key", 1, "Invalid configuration key no_such_key"),
        (ALICE, CONNECTION_CREATION_RATE, 1, f"Invalid configuration key {CONNECTION_CREATION_RATE}"),
        (IP, PRODUCER_BYTE_RATE, 1, f"Invalid configuration key {PRODUCER_BYTE_RATE}"),
        (ALICE, PRODUCER_BYTE_RATE, math.nan, "Quota producer_byte_rate must be a finite number"),
        (ALICE, PRODUCER_BYTE_RATE, math.inf, "Quota producer_byte_rate must be a finite number"),
        (ALICE, PRODUCER_BYTE_RATE, 0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, REQUEST_PERCENTAGE, -1, "Quota request_percentage must be greater than 0"),
        (ALICE, PRODUCER_BYTE_RATE, 0.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, CONSUMER_BYTE_RATE, 1e19, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (IP, CONNECTION_CREATION_RATE, 1.5, "connection_creation_rate cannot be a fractional value."),
        (IP, CONNECTION_CREATION_RATE, 2**31, TOO_LARGE),
        (ALICE, REQUEST_PERCENTAGE, 0.001, ""),
        (ALICE, CONTROLLER_MUTATION_RATE, 1e300, ""),
        ((("client-id", None), ("user", "a")), CONSUMER_BYTE_RATE, 2.0**63, ""),
        ((("ip", None),), CONNECTION_CREATION_RATE, 2**31 - 1, ""),
        ((("ip", "2001:db8::1"),), CONNECTION_CREATION_RATE, 5, ""),
    ],
    ids=str,
)  # fmt: skip
async def test_what_can_be_a_quota_and_what_cannot(
    parts: Parts, key: str, value: float, problem: str
) -> None:
    controller = Controller()
    assert await controller.alter(parts, (key, value)) == problem
    assert len(controller.recorded) == (not problem)


async def test_an_entity_is_changed_as_a_whole_or_not_at_all() -> None:
    controller = Controller()
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 1), ("no_such_key", 1))
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 1), (PRODUCER_BYTE_RATE, 2)) == (
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    )
    assert controller.recorded == []
    results = await controller.changes.change(
        [
            QuotaAlteration(ALICE, ((PRODUCER_BYTE_RATE, 1.0),)),
            QuotaAlteration((("user", None),), ((PRODUCER_BYTE_RATE, 1.0),)),
            QuotaAlteration(ALICE, ((CONSUMER_BYTE_RATE, 1.0),)),
        ],
        False,
    )
    assert [error is None for error in results.values()] == [False, True]
    assert controller.recorded == [QuotaChange((("user", None),), PRODUCER_BYTE_RATE, 1)]


async def test_the_forms_of_an_address_are_one_entity() -> None:
    controller = Controller()
    forms: tuple[Parts, ...] = (IP, (("ip", "::ffff:192.0.2.1"),), (("ip", "2001:DB8::1"),))
    alterations = [QuotaAlteration(each, ((CONNECTION_CREATION_RATE, 1.0),)) for each in forms]
    results = await controller.changes.change(alterations, False)
    assert [results[each] is None for each in forms] == [False, False, True]
    entity = (("ip", "2001:db8::1"),)
    assert controller.recorded == [QuotaChange(entity, CONNECTION_CREATION_RATE, 1)]


async def test_an_entity_is_recorded_in_one_part_and_an_error_is_that_of_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota_changes, "MAX_BATCH_CHANGES", 3)
    controller = Controller()
    keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
    names: list[Parts] = [(("user", f"user-{number}"),) for number in range(5)]
    alterations = [QuotaAlteration(each, tuple((key, 1.0) for key in keys)) for each in names]
    alterations.insert(1, QuotaAlteration(IP, ((CONNECTION_CREATION_RATE, None),)))
    full = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    def fail_then(count: int, record: Any = controller.record) -> Any:
        async def failing(changes: Sequence[QuotaChange]) -> None:
            controller.failure = full if len(controller.commits) == count else None
            await record(changes)

        return failing

    controller.changes = QuotaChanges(controller.table, fail_then(1), asyncio.Lock())
    results = await controller.changes.change(alterations, False)
    assert results == {names[0]: None, IP: None, names[1]: None} | dict.fromkeys(names[2:], full)
    assert controller.commits == [4]
    for each in names:
        entity = entity_of(each)
        assert dict(controller.table.of(entity)) == (
            dict.fromkeys(keys, 1.0) if results[each] is None else {}
        )
    controller.changes = QuotaChanges(controller.table, fail_then(-1), asyncio.Lock())
    assert set((await controller.changes.change(alterations, False)).values()) == {None}
    assert controller.commits == [4, 4, 2]


async def test_changes_at_the_same_time_keep_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_changes, "MAX_ENTITIES", 1)
    controller = Controller()
    both = [
        controller.changes.change([QuotaAlteration((("user", name),), ((PRODUCER_BYTE_RATE, 1.0),))], False)
        for name in ("a", "b")
    ]
    errors = [error for results in await asyncio.gather(*both) for error in results.values()]
    assert [error and error.error for error in errors] == [None, ErrorCode.POLICY_VIOLATION]
    assert len(controller.table) == 1


async def test_only_what_differs_is_recorded() -> None:
    controller = Controller()
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 1), (CONSUMER_BYTE_RATE, 2)) == ""
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 1), (CONSUMER_BYTE_RATE, None)) == ""
    assert await controller.alter(ALICE, (CONSUMER_BYTE_RATE, None), ("no_such_key", None)) == ""
    assert controller.recorded == [
        QuotaChange(ALICE, PRODUCER_BYTE_RATE, 1),
        QuotaChange(ALICE, CONSUMER_BYTE_RATE, 2),
        QuotaChange(ALICE, CONSUMER_BYTE_RATE, None),
    ]


async def test_validation_alone_records_nothing() -> None:
    controller = Controller()
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 1), dry=True) == ""
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, -1), dry=True)
    assert controller.recorded == []


async def test_a_failed_record_is_the_error_of_each_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    controller.failure = RequestError(ErrorCode.NOT_CONTROLLER, "another node is")
    changed = QuotaAlteration(ALICE, ((PRODUCER_BYTE_RATE, 1.0),))
    unchanged = QuotaAlteration(IP, ((CONNECTION_CREATION_RATE, None),))
    results = await controller.changes.change([changed, unchanged], False)
    assert results == {ALICE: controller.failure, IP: None}
    controller.failure = None
    monkeypatch.setattr(quota_changes, "MAX_ENTITIES", 1)
    assert await controller.changes.change([changed], False) == {ALICE: None}
    full = await controller.changes.change([QuotaAlteration(IP, ((CONNECTION_CREATION_RATE, 1.0),))], False)
    assert [error and error.error for error in full.values()] == [ErrorCode.POLICY_VIOLATION]
    assert await controller.alter(ALICE, (PRODUCER_BYTE_RATE, 5)) == ""
