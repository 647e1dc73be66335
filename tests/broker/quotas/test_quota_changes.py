"""Checks of changes of quotas: the errors of Kafka 4.4.0, and what is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from lockstep.broker.quotas import quota_changes
from lockstep.broker.quotas.quota_changes import Parts, QuotaAlteration, QuotaChange, QuotaChanges
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
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
        self.changes = QuotaChanges(self.table, self.record)

    async def record(self, changes: Sequence[QuotaChange]) -> None:
        if self.failure is not None:
            raise self.failure
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
